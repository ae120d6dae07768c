"""What operators load: every metric and label is the server's, every alert says what to do, the dashboard fits."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.harness import serving
from deploy.deployed import (
    ALERT_TESTS,
    ALERTS,
    DASHBOARD,
    DEPLOY,
    METRIC,
    PANELS,
    RECORDED,
    TARGETS,
    VARIABLES,
    expressions,
    make_dashboard,
    read,
)

OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
OF_TARGET = {"job", "instance"}  # labels that Prometheus itself gives
SELECTOR = re.compile(r"\b(everystep_\w+)\{([^}]*)\}")


def anchors() -> set[str]:
    """Of the page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", OPERATIONS, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.fixture
async def exposed() -> dict[str, set[str]]:
    """Each sample's name of a real scrape, with its labels."""
    found: dict[str, set[str]] = defaultdict(set)
    async with serving() as server:
        text = (await server.http.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


# --- Prometheus ------------------------------------------------------------------------------------
def test_the_two_configurations_differ_in_the_key_alone() -> None:
    plain, with_key = read("prometheus.yml"), read("prometheus-key.yml")
    key = with_key["scrape_configs"][0].pop("authorization")
    assert with_key == plain
    assert key == {"type": "Bearer", "credentials_file": "everystep.key"}
    assert [job["job_name"] for job in plain["scrape_configs"]] == ["everystep"]
    assert all((DEPLOY / name).is_file() for name in plain["rule_files"])


async def test_every_metric_of_every_expression_is_exposed_or_recorded(exposed: dict[str, set[str]]) -> None:
    for where, expr in expressions().items():
        names = set(METRIC.findall(expr)) - {"up"}
        assert names or "up{" in expr, where
        unknown = names - set(exposed) - set(RECORDED)
        assert unknown == set(), where


async def test_every_label_that_is_asked_for_is_the_metric_s(exposed: dict[str, set[str]]) -> None:
    num = 0
    for where, expr in expressions().items():
        for name, matchers in SELECTOR.findall(expr):
            asked = set(re.findall(r"(\w+)\s*[=!]", matchers))
            assert asked <= exposed[name] | OF_TARGET, (where, name)
            num += bool(asked)
    assert num > 20


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_happened_and_what_to_do_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    assert "$labels.instance" in notes["summary"]
    assert len(notes["summary"]) < 140
    assert len(notes["description"]) > 60
    assert rule["labels"]["severity"] in ("critical", "warning")
    page, _, anchor = notes["runbook"].partition("#")
    assert page == "docs/operations.md"
    assert anchor in anchors()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_tested_to_fire_and_not_to_fire(name: str) -> None:
    """What promtool is then told to see."""
    fires, is_quiet = False, False
    for test in ALERT_TESTS:
        asked = [one for one in test["promql_expr_test"] if "ALERTS" in one["expr"]]
        told = [[sample["labels"] for sample in one["exp_samples"]] for one in asked]
        if any(f'alertname="{name}"' in labels for samples in told for labels in samples):
            fires = True
            instances = {re.search(r'instance="(\w+)"', one["series"])[1] for one in test["input_series"]}  # type: ignore[index]
            is_quiet |= len(instances) > 1 and [] in told
    assert (fires, is_quiet) == (True, True)


def test_the_operator_s_page_has_a_row_for_every_alert_and_none_beside_them() -> None:
    assert set(re.findall(r"^\| `(Everystep\w+)` \|", OPERATIONS, re.MULTILINE)) == set(ALERTS)


# --- Grafana ---------------------------------------------------------------------------------------
def test_the_dashboard_is_what_its_program_makes() -> None:
    assert make_dashboard().dashboard() == DASHBOARD


def test_each_panel_has_a_number_of_its_own_a_description_and_something_to_show() -> None:
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers) > 20
    for panel in PANELS:
        assert len(panel["description"]) > 8, panel["title"]
        assert panel["type"] in {"stat", "timeseries"}
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
    requires = {one["id"] for one in DASHBOARD["__requires"] if one["type"] == "panel"}
    assert requires == {panel["type"] for panel in PANELS}


def test_panels_lie_within_the_grid_and_on_no_other() -> None:
    def cells(panel: dict) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        columns = range(
            place["x"], 24 if panel.get("repeat") else place["x"] + place["w"]
        )  # it is repeated to the right
        return {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}

    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["w"] > 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])


def test_every_variable_that_is_used_is_defined_and_every_defined_one_used() -> None:
    text = json.dumps(DASHBOARD)
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
    assert used == set(VARIABLES) == {"datasource", "job", "instance", "policy"}
    assert VARIABLES["datasource"] | {"type": "datasource", "query": "prometheus"} == VARIABLES["datasource"]


def test_every_query_goes_to_the_chosen_prometheus_and_to_the_chosen_servers() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for title, target in TARGETS:
        assert target["datasource"] == source
        selectors = SELECTOR.findall(target["expr"])
        assert len(selectors) == len(METRIC.findall(target["expr"])), title
        for name, matchers in selectors:
            assert 'job=~"$job", instance=~"$instance"' in matchers, (title, name)
    assert all(panel["datasource"] == source for panel in PANELS)


def test_a_rate_is_taken_of_what_only_grows_and_of_nothing_else() -> None:
    grows = re.compile(r"(_total|_bucket|_sum|_count)$")
    for where, expr in expressions().items():
        rated = set(re.findall(r"(?:rate|increase)\((\w+)", expr))
        assert all(grows.search(name) for name in rated), where
        plain = set(re.findall(r"everystep_\w+", expr)) - rated
        assert not [name for name in plain if grows.search(name)], where


def test_every_row_of_the_dashboard_that_operators_were_promised_is_there() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "Latency", "Batching", "Cache", "Health"]
    shown = "".join(target["expr"] for _, target in TARGETS)
    for share in ("0.5", "0.95", "0.99"):
        assert f"histogram_quantile({share}, " in shown


def test_grafana_finds_prometheus_and_the_dashboard_by_the_provisioning_files() -> None:
    source = read("grafana/provisioning/datasources/everystep.yml")["datasources"][0]
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    interval = read("prometheus.yml")["scrape_configs"][0]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
    assert read("grafana/provisioning/dashboards/everystep.yml")["providers"][0]["type"] == "file"
