"""Writes ``grafana/everystep.json``, the dashboard: ``python deploy/make_dashboard.py``.

Owns which panels there are, what each asks Prometheus, and where it lies.  The JSON is Grafana's classic model of a
dashboard (https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/), which newer
versions take in too.  A test compares the file with what this makes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

OUT = Path(__file__).parent / "grafana" / "everystep.json"
SCHEMA_VERSION = 42  # Grafana 13's; a newer one migrates it when it is opened
COLUMNS = 24  # of Grafana's grid
OF_SERVER = 'job=~"$job", instance=~"$instance"'
OF_LANE = f'{OF_SERVER}, policy=~"$policy"'
HELD_SEATS = f'{OF_LANE}, state="held"'
BAD_ENDS = f'{OF_LANE}, outcome!~"stop|length"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
QUANTILES = (0.5, 0.95, 0.99)
SECONDS, SHARE, RATE, BYTES, NUMBER = "s", "percentunit", "reqps", "bytes", "short"
GREEN, RED, ORANGE = "green", "red", "orange"
WORKING, HELD, EMPTY = "#0072b2", "#e69f00", "#999999"  # told apart by the colour-blind too (Okabe and Ito, 2008)


@dataclass(frozen=True)
class Panel:
    """One panel.  ``asks`` are pairs of an expression and its legend."""

    title: str
    description: str
    asks: Sequence[tuple[str, str]]
    unit: str = NUMBER
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    field_config: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    overrides: Sequence[Json] = ()
    repeat: str | None = None


def rate(name: str, labels: str = OF_SERVER) -> str:
    return f"rate({name}{{{labels}}}[$__rate_interval])"


def quantiles(name: str) -> list[tuple[str, str]]:
    """Of a histogram, over all servers that are chosen."""
    buckets = f"sum by (le) ({rate(f'{name}_bucket')})"
    return [(f"histogram_quantile({share}, {buckets})", f"p{share * 100:.0f}") for share in QUANTILES]


def mean(name: str) -> str:
    return f"sum({rate(f'{name}_sum')}) / sum({rate(f'{name}_count')})"


# --- the panels, row by row ------------------------------------------------------------------------
def overview() -> Iterator[Panel]:
    ready = [{"options": {"0": {"text": "no", "color": RED}, "1": {"text": "yes", "color": GREEN}}, "type": "value"}]
    yield stat(
        "Ready", "Whether each server would serve a request sent now.",
        f"everystep_engine_ready{{{OF_SERVER}}}", legend="{{instance}}", field_config={"mappings": ready},
    )  # fmt: skip
    yield stat("Tokens", "Generated in a second, by all.", f"sum({rate('everystep_generation_tokens_total')})",
               unit="suffix: tokens/s")  # fmt: skip
    yield stat("Running", "Requests with a seat.", f"sum(everystep_num_requests_running{{{OF_LANE}}})")
    yield stat("Waiting", "Requests without one.", f"sum(everystep_num_requests_waiting{{{OF_LANE}}})")
    yield stat("KV cache", "Of the fullest server.", f"max(everystep_kv_cache_usage_ratio{{{OF_SERVER}}})", unit=SHARE)
    yield stat(
        "Held seats", "Of the seats times steps of the chosen lanes, those that finished rows held.",
        f"sum({rate('everystep_seat_steps_total', HELD_SEATS)})"
        f" / sum({rate('everystep_seat_steps_total', OF_LANE)})", unit=SHARE,
    )  # fmt: skip
    yield Panel(
        "Tokens a second", "Read: prompts of requests that got a seat. Found: prompt tokens that were in the cache.",
        [
            (f"sum({rate('everystep_generation_tokens_total')})", "generated"),
            (f"sum({rate('everystep_prompt_tokens_total')})", "read"),
            (f"sum({rate('everystep_prefix_cache_hit_tokens_total')})", "found"),
        ], unit="suffix: tokens/s",
    )  # fmt: skip
    yield Panel(
        "Requests a second, by how they end", "A request is one prompt, or one of its n choices. Rejected: 429.",
        [(f"sum by (outcome) ({rate('everystep_requests_total', OF_LANE)})", "{{outcome}}")], unit=RATE,
    )  # fmt: skip
    yield Panel(
        "Running and waiting", "By lane. The line's bound holds for all lanes of a server together.",
        [
            (f"sum by (policy) (everystep_num_requests_running{{{OF_LANE}}})", "{{policy}} running"),
            (f"sum by (policy) (everystep_num_requests_waiting{{{OF_LANE}}})", "{{policy}} waiting"),
            (f"sum by (policy) (everystep_seats{{{OF_LANE}}})", "{{policy}} seats"),
            (f"sum(everystep_max_queue_requests{{{OF_SERVER}}})", "bound of the line"),
        ], overrides=[dashed("/seats$|^bound/")],
    )  # fmt: skip


def latency() -> Iterator[Panel]:
    for title, name, words in (
        ("Time to the first token", "everystep_time_to_first_token_seconds", "From a request's arrival."),
        ("Between tokens", "everystep_inter_token_latency_seconds", "From one token of a request to its next."),
        ("In the line", "everystep_request_queue_seconds", "From a request's arrival to its first forward pass."),
        ("Whole requests", "everystep_e2e_request_seconds", "From arrival to the end, whatever the end."),
    ):
        yield Panel(
            title, f"{words} All lanes: the histogram has no label for them.", quantiles(name), SECONDS, width=6
        )


def batching() -> Iterator[Panel]:
    seats = rate("everystep_seat_steps_total", OF_LANE)
    share = f"sum by (state) ({seats}) / ignoring (state) group_left () sum({seats})"
    yield Panel(
        "Seats of $policy", "In each step every seat of the lane works, is held by a finished row, or is empty.",
        [(share, "{{state}}")],
        unit=SHARE, field_config={"min": 0, "max": 1, "custom": STACKED}, repeat="policy",
        overrides=[coloured("working", WORKING), coloured("held", HELD), coloured("empty", EMPTY)],
    )  # fmt: skip
    yield Panel(
        "Time of a step", "A forward pass with planning and sampling.", quantiles("everystep_step_seconds"), SECONDS
    )
    yield Panel(
        "Tokens of a step", "Computed in one forward pass: rows that generate have one, prompts many.",
        [(mean("everystep_step_tokens"), "mean"), *quantiles("everystep_step_tokens")],
    )  # fmt: skip
    yield Panel("Steps a second", "By server.", [(rate("everystep_step_seconds_count"), "{{instance}}")], unit="ops")


def cache() -> Iterator[Panel]:
    found = rate("everystep_prefix_cache_hit_tokens_total")
    yield Panel(
        "Blocks in use", "Shares of each server's KV cache.",
        [(f"everystep_kv_cache_usage_ratio{{{OF_SERVER}}}", "{{instance}}")],
        unit=SHARE, field_config={"min": 0, "max": 1},
    )  # fmt: skip
    yield Panel(
        "Prompt tokens found in the cache", "Of those of requests that got a seat.",
        [(f"sum({found}) / sum({rate('everystep_prompt_tokens_total')})", "found")],
        unit=SHARE, field_config={"min": 0},
    )  # fmt: skip
    yield Panel(
        "Preemptions", "Sequences that gave seat and blocks back, to be computed again: work done twice.",
        [(rate("everystep_preemptions_total"), "{{instance}}")], unit="ops",
    )  # fmt: skip


def health() -> Iterator[Panel]:
    yield Panel(
        "Readiness", "1 where a request sent now would be served.",
        [(f"everystep_engine_ready{{{OF_SERVER}}}", "{{instance}}")],
        field_config={"min": 0, "max": 1, "custom": STEPS},
    )  # fmt: skip
    yield Panel(
        "Since the last progress", "Grows while there is work and no step ends. At the bound the worker is replaced.",
        [
            (f"everystep_seconds_since_progress{{{OF_SERVER}}}", "{{instance}}"),
            (f"min(everystep_stall_timeout_seconds{{{OF_SERVER}}})", "bound"),
        ], unit=SECONDS, overrides=[dashed("/^bound$/")],
    )  # fmt: skip
    yield Panel(
        "Worker restarts", "In the last quarter of an hour; the log says why each ended.",
        [(f"increase(everystep_worker_restarts_total{{{OF_SERVER}}}[15m])", "{{instance}}")],
        field_config={"min": 0, "decimals": 0},
    )  # fmt: skip
    yield Panel(
        "Requests that end badly", "Rejected: the line was full. Aborted: the client left.",
        [(f"sum by (outcome) ({rate('everystep_requests_total', BAD_ENDS)})", "{{outcome}}")],
        unit=RATE, width=6,
    )  # fmt: skip
    yield Panel(
        "Connections", "Idle ones too.",
        [
            (f"everystep_http_connections{{{OF_SERVER}}}", "{{instance}}"),
            (f"min(everystep_max_http_connections{{{OF_SERVER}}})", "bound"),
        ], width=6, overrides=[dashed("/^bound$/")],
    )  # fmt: skip
    yield Panel(
        "Memory", "Resident, by process. Out of memory, the kernel ends the larger one.",
        [(f"everystep_process_resident_memory_bytes{{{OF_SERVER}}}", "{{instance}} {{process}}")], unit=BYTES, width=6,
    )  # fmt: skip
    yield Panel(
        "Processors", "As many as each process keeps busy.",
        [(rate("everystep_process_cpu_seconds_total"), "{{instance}} {{process}}")], width=6,
    )  # fmt: skip


ROWS = {"Overview": overview, "Latency": latency, "Batching": batching, "Cache": cache, "Health": health}
STACKED: Json = {"fillOpacity": 70, "lineWidth": 0, "stacking": {"mode": "normal", "group": "A"}}
STEPS: Json = {"lineInterpolation": "stepAfter", "fillOpacity": 20}


# --- their parts -----------------------------------------------------------------------------------
def stat(
    title: str, words: str, expr: str, *, legend: str = "", unit: str = NUMBER, field_config: Json | None = None
) -> Panel:
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value", "graphMode": "area", "textMode": "auto", "orientation": "auto", "justifyMode": "auto",
    }  # fmt: skip
    return Panel(title, words, [(expr, legend)], unit, "stat", 4, 4, field_config or {}, options)


def dashed(pattern: str) -> Json:
    """Lines that are bounds."""
    style = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 8]}}
    return {"matcher": {"id": "byRegexp", "options": pattern}, "properties": [style]}


def coloured(name: str, colour: str) -> Json:
    value = {"mode": "fixed", "fixedColor": colour}
    return {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "color", "value": value}]}


def panel_json(panel: Panel, number: int, x: int, y: int) -> Json:
    series_options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [target(expr, legend, "ABCDEFGH"[index]) for index, (expr, legend) in enumerate(panel.asks)],
        "fieldConfig": {"defaults": {"unit": panel.unit, **panel.field_config}, "overrides": list(panel.overrides)},
        "options": panel.options or series_options,
    }
    if panel.repeat:
        made |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": COLUMNS // panel.width}
    return made


def target(expr: str, legend: str, ref: str) -> Json:
    return {"refId": ref, "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto", "range": True,
            "instant": False, "editorMode": "code"}  # fmt: skip


def laid_out() -> Iterator[Json]:
    """Panels from left to right under the title of their row; one that is repeated has a line for itself."""
    number = y = 0
    for title, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}  # fmt: skip
        y, x, height = y + 1, 0, 0
        for panel in panels():
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            number += 1
            yield panel_json(panel, number, x, y)
            height = max(height, panel.height)
            x = COLUMNS if panel.repeat else x + panel.width
        y += height


def variable(name: str, label: str, metric: str, within: str) -> Json:
    query = f"label_values({metric}{{{within}}}, {name})"
    return {
        "type": "query", "name": name, "label": label, "datasource": SOURCE,
        "query": {"query": query, "refId": "Variable"}, "refresh": 2, "sort": 1, "multi": True, "includeAll": True,
        "hide": 0, "regex": "", "options": [], "current": {"text": ["All"], "value": ["$__all"]},
    }  # fmt: skip


def dashboard() -> Json:
    source = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0,
              "regex": "", "refresh": 1, "multi": False, "includeAll": False, "options": []}  # fmt: skip
    variables = [
        source,
        variable("job", "Job", "everystep_info", ""),
        variable("instance", "Server", "everystep_info", 'job=~"$job"'),
        variable("policy", "Lane", "everystep_num_requests_running", OF_SERVER),
    ]
    needs = {"grafana": "11.0.0", "prometheus": "1.0.0", "stat": "", "timeseries": ""}
    kinds = {"grafana": "grafana", "prometheus": "datasource"}
    return {
        "__inputs": [],
        "__requires": [
            {"type": kinds.get(name, "panel"), "id": name, "name": name.title(), "version": version}
            for name, version in needs.items()
        ],
        "id": None, "uid": "everystep", "title": "everystep", "tags": ["everystep", "llm"], "editable": True,
        "description": "An LLM inference server: who is served, how fast, and what the seats of each lane do.",
        "schemaVersion": SCHEMA_VERSION, "version": 1, "timezone": "browser", "refresh": "10s", "graphTooltip": 1,
        "time": {"from": "now-30m", "to": "now"}, "timepicker": {}, "fiscalYearStartMonth": 0, "liveNow": False,
        "links": [], "annotations": {"list": []}, "templating": {"list": variables}, "panels": list(laid_out()),
    }  # fmt: skip


if __name__ == "__main__":
    OUT.write_text(json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
