"""The files of ``deploy/`` as data, and the names in their expressions."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
METRIC = re.compile(r"\b(?:everystep_\w+|instance\w*:everystep_\w+:\w+)")


def read(name: str) -> Any:
    """A YAML or JSON file."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in read(name)["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
ALERT_TESTS = read("alerts_test.yml")["tests"]
RECORDED = {rule["record"]: rule["expr"] for rule in rules("recording.yml")}
DASHBOARD = read("grafana/everystep.json")
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}


def make_dashboard() -> ModuleType:
    """The module that writes the dashboard."""
    spec = importlib.util.spec_from_file_location("make_dashboard", DEPLOY / "make_dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def expressions() -> dict[str, str]:
    """All of them, by where each stands."""
    found = {f"record {name}": expr for name, expr in RECORDED.items()}
    found |= {f"alert {name}": rule["expr"] for name, rule in ALERTS.items()}
    found |= {f"panel {title} {target['refId']}": target["expr"] for title, target in TARGETS}
    return found
