"""A real Prometheus takes the files, scrapes a real server with its key, and answers every expression of them."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cli.served import DEADLINE_S, serving
from deploy.deployed import ALERTS, DEPLOY, RECORDED, TARGETS, VARIABLES, read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("promtool") and shutil.which("prometheus")),
        reason="no prometheus and promtool in PATH (Debian, Ubuntu: apt install prometheus)",
    ),
]
KEY = "a-key-of-sixteen-characters"
NUM_SCRAPES = 5
MAX_QUEUE = 8
COMPARISON = re.compile(r"(?<![=!~<>])(==|>|<)(?![=~])")


def promtool(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=DEADLINE_S, cwd=DEPLOY)


# --- promtool --------------------------------------------------------------------------------------
def test_promtool_takes_the_rules_and_both_configurations(tmp_path: Path) -> None:
    assert promtool("check", "rules", "recording.yml", "alerts.yml").returncode == 0
    assert promtool("check", "config", "prometheus.yml").returncode == 0
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    done = promtool("check", "config", tmp_path / "deploy" / "prometheus-key.yml")
    assert (done.returncode, "everystep.key" in done.stderr) == (1, True), "it wants the key's file"
    (tmp_path / "deploy" / "everystep.key").write_text(KEY)
    assert promtool("check", "config", tmp_path / "deploy" / "prometheus-key.yml").returncode == 0


def test_every_alert_fires_when_it_should_and_no_other_does() -> None:
    done = promtool("test", "rules", "alerts_test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_that_never_fired_or_fired_at_once_would_be_noticed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    shutil.copytree(DEPLOY, folder)
    tests = read("alerts_test.yml")
    tests["tests"] = [test for test in tests["tests"] if name in test["name"]]
    (folder / "alerts_test.yml").write_text(yaml.safe_dump(tests))
    assert promtool("test", "rules", folder / "alerts_test.yml").returncode == 0
    for change in ({"expr": "vector(1) > 2"}, {"expr": f"({ALERTS[name]['expr']}) or on () vector(1)", "for": "0s"}):
        alerts = read("alerts.yml")
        [rule] = [one for one in alerts["groups"][0]["rules"] if one["alert"] == name]
        rule.update(change)
        (folder / "alerts.yml").write_text(yaml.safe_dump(alerts))
        assert promtool("test", "rules", folder / "alerts_test.yml").returncode == 1


# --- a Prometheus and a server ---------------------------------------------------------------------
class Prometheus:
    """One that runs, asked by its HTTP API."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=DEADLINE_S)

    def get(self, path: str, **params: str) -> Any:
        reply = self.client.get(f"/api/v1/{path}", params=params)
        assert reply.status_code == 200, (params, reply.text)
        return reply.json()["data"]

    def ask(self, expr: str) -> list[dict[str, Any]]:
        return self.get("query", query=expr)["result"]  # type: ignore[no-any-return]


def loosened(expr: str) -> str:
    """The same with comparisons that answer 0 or 1 instead of leaving out: empty only where labels don't match."""
    return COMPARISON.sub(r"\1 bool", expr)


def configure(folder: Path, target: str) -> Path:
    """``deploy/`` as an operator would have it, at one scrape a second, and the alerts again with no threshold."""
    shutil.copytree(DEPLOY, folder)
    (folder / "everystep.key").write_text(KEY)
    config = read("prometheus-key.yml")
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    config["rule_files"].append("loosened.yml")
    always = [
        {"alert": name, "expr": f"({loosened(rule['expr'])}) >= 0 or ({loosened(rule['expr'])})",
         "annotations": rule["annotations"], "labels": {"loosened": "yes"}}
        for name, rule in ALERTS.items()
    ]  # fmt: skip
    (folder / "loosened.yml").write_text(yaml.safe_dump({"groups": [{"name": "loosened", "rules": always}]}))
    path = folder / "prometheus-key.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def prometheus(config: Path, tmp_path: Path) -> Iterator[Prometheus]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"]
    process = subprocess.Popen(["prometheus", *flags], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Server is ready to receive web requests" in line:
                break
        else:
            raise AssertionError(f"Prometheus ended with {process.wait()}")
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped a server amid some traffic: each lane served, some refused."""
    tmp_path = tmp_path_factory.mktemp("deploy")
    (tmp_path / "keys").write_text(KEY)
    (tmp_path / "keys").chmod(0o600)
    flags = ("--api-key-file", str(tmp_path / "keys"), "--max-queue", str(MAX_QUEUE))
    with serving(tmp_path, *flags) as server:
        config = configure(tmp_path / "deploy", server.url.removeprefix("http://"))
        with prometheus(config, tmp_path) as asked:
            for _ in range(10_000):
                send_some(server.client)
                seen = asked.ask("min(count_over_time(everystep_engine_ready[5m]))")
                if seen and int(seen[0]["value"][1]) >= NUM_SCRAPES and are_evaluated(asked):
                    break
            yield asked


def send_some(client: httpx.Client) -> None:
    """Prompts for each lane, and more at once than the line holds."""
    client.headers["authorization"] = f"Bearer {KEY}"
    for policy in ("static", "per_token", "continuous"):
        body = {"prompts": ["x", "a longer prompt", "y"], "max_tokens": 20, "policy": policy}
        assert client.post("/generate", json=body).status_code == 200
    too_many = {"prompts": ["x"] * MAX_QUEUE, "max_tokens": 40, "ignore_eos": True}
    with ThreadPoolExecutor(6) as pool:
        replies = pool.map(lambda _: client.post("/generate", json=too_many), range(6))
        assert {reply.status_code for reply in replies} <= {200, 429}


def are_evaluated(asked: Prometheus) -> bool:
    """Whether the rules have seen enough scrapes for a value, and some that were refused."""
    has_rates = asked.ask('{__name__=~"instance.*p95_5m"} >= 0') != []
    has_refused = asked.ask('ALERTS{alertname="EverystepRejects", loosened=""}') != []
    return has_rates and has_refused and len(loosely_firing(asked)) == len(ALERTS)


def loosely_firing(asked: Prometheus) -> dict[str, dict[str, str]]:
    alerts = asked.get("alerts")["alerts"]
    return {one["labels"]["alertname"]: one["annotations"] for one in alerts if one["labels"].get("loosened") == "yes"}


def test_the_server_is_scraped_with_its_key(scraped: Prometheus) -> None:
    [target] = scraped.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert [one["value"][1] for one in scraped.ask('up{job="everystep"}')] == ["1"]


def test_every_rule_is_evaluated_without_an_error_and_every_recorded_one_has_a_value(scraped: Prometheus) -> None:
    rules = [rule for group in scraped.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(RECORDED) + 2 * len(ALERTS)
    assert {(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"} == set()
    assert [name for name in RECORDED if not scraped.ask(name)] == []


@pytest.mark.parametrize("name", ALERTS)
def test_the_labels_of_both_sides_of_an_alert_match(scraped: Prometheus, name: str) -> None:
    assert scraped.ask(loosened(ALERTS[name]["expr"])) != []


def test_a_server_that_is_well_fires_no_alert_but_that_it_refuses(scraped: Prometheus) -> None:
    firing = {one["metric"]["alertname"] for one in scraped.ask('ALERTS{loosened="", alertstate="firing"}')}
    assert firing == set()
    pending = {one["metric"]["alertname"] for one in scraped.ask('ALERTS{loosened="", alertstate="pending"}')}
    assert pending <= {"EverystepRejects", "EverystepHeldSeats"}
    assert "EverystepRejects" in pending


@pytest.mark.parametrize("name", ALERTS)
def test_the_words_of_an_alert_are_filled_in(scraped: Prometheus, name: str) -> None:
    words = loosely_firing(scraped)[name]
    assert "127.0.0.1:" in words["summary"]
    for text in words.values():
        assert not re.search(r"\{\{|<error|<no value>|%!", text), text


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title} {one['refId']}" for title, one in TARGETS])
def test_every_query_of_the_dashboard_has_a_result_with_the_labels_of_its_legend(
    scraped: Prometheus, title: str, target: dict[str, str]
) -> None:
    expr = re.sub(r"\$(job|instance|policy)\b", ".*", target["expr"]).replace("$__rate_interval", "1m")
    result = scraped.ask(expr)
    assert result != []
    wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert all(wanted <= set(one["metric"]) for one in result)
    assert wanted or len(result) == 1 or target["legendFormat"] == "__auto", "series that can't be told apart"


@pytest.mark.parametrize("name", ["job", "instance", "policy"])
def test_every_variable_of_the_dashboard_has_values(scraped: Prometheus, name: str) -> None:
    found = re.fullmatch(rf"label_values\((\w+)\{{.*\}}, {name}\)", VARIABLES[name]["query"]["query"])
    assert found is not None
    values = {one["metric"][name] for one in scraped.ask(found[1])}
    assert values
    assert name != "policy" or values == {"static", "per_token", "continuous"}
