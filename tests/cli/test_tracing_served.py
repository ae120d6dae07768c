"""``everystep serve --otel`` as a process, and a collector that takes its spans, refuses them, or never answers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cli.served import DEADLINE_S, ROOT, TINY, command, environment, serving

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"  # W3C's own example
HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
"""
BODY = {"prompt": "a b c", "max_tokens": 3, "ignore_eos": True}


class Collector(ThreadingHTTPServer):
    """Speaks OTLP over HTTP.  ``status`` is what it answers; ``None``: it never does, until the test lets go."""

    daemon_threads = True

    def __init__(self, status: int | None = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.status = status
        self.taken: list[tuple[str, dict[str, str], bytes]] = []
        self.has_asked, self.is_free = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[dict[str, Any]]:
        """What came, decoded by OpenTelemetry's own protocol; each with the attributes of its resource."""
        found = []
        for _, _, body in self.taken:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_spans:
                    found += [{"span": span, "resource": about, "scope": scope.scope.name} for span in scope.spans]
        return found


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        collector = cast(Collector, self.server)
        body = self.rfile.read(int(self.headers["content-length"]))
        collector.taken.append((self.path, dict(self.headers), body))
        collector.has_asked.set()
        if collector.status is None:
            collector.is_free.wait()
            return
        self.send_response(collector.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """One that servers started by the test send to."""
    with Collector() as taking:
        thread = threading.Thread(target=taking.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", taking.url)
        yield taking
        taking.is_free.set()
        taking.shutdown()
        thread.join()


def test_a_served_requests_spans_reach_a_collector_by_its_protocol_before_the_server_ends(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20collectors-key")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
    with serving(tmp_path, "--otel", "--log-json") as server:
        headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "x-request-id": "mine-01"}
        reply = server.client.post("/basic_generate", json=BODY, headers=headers)
        assert reply.status_code == 200
        assert "everystep_trace_spans_total" in server.client.get("/metrics").text
        server.process.terminate()
        status, said = server.end()
    assert status == 0
    assert "were lost" not in said
    assert "collectors-key" not in said
    assert {path for path, _, _ in collector.taken} == {"/v1/traces"}
    assert {headers["authorization"] for _, headers, _ in collector.taken} == {"Bearer collectors-key"}
    spans = collector.spans()
    assert [one["span"].name for one in spans] == ["queue", "prefill", "decode", f"text_completion {TINY}"]
    assert {one["span"].trace_id.hex() for one in spans} == {TRACE_ID}
    root = spans[-1]["span"]
    assert root.parent_span_id.hex() == PARENT_ID
    assert {one["span"].parent_span_id for one in spans[:-1]} == {root.span_id}
    values = {one.key: one.value for one in root.attributes}
    assert values["everystep.request.id"].string_value == "mine-01"
    assert values["gen_ai.usage.output_tokens"].int_value == 3
    assert values["server.port"].int_value == server.client.base_url.port
    about = spans[-1]["resource"]
    assert (about["service.name"], about["deployment.environment.name"]) == ("everystep", "staging")


@pytest.mark.slow
def test_a_collector_that_never_answers_delays_neither_requests_nor_the_end(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.status = None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    with serving(tmp_path, "--otel") as server:
        assert server.client.post("/basic_generate", json=BODY).status_code == 200
        assert collector.has_asked.wait(DEADLINE_S)
        assert server.client.post("/basic_generate", json=BODY).status_code == 200
        server.process.terminate()
        status, said = server.end()  # in less than an hour
    assert status == 0
    assert "0 spans were sent to the collector, 8 were lost" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_collector_that_refuses_is_a_line_in_the_logs_own_form(collector: Collector, tmp_path: Path) -> None:
    collector.status = 403
    with serving(tmp_path, "--otel", "--log-json") as server:
        assert server.client.post("/basic_generate", json=BODY).status_code == 200
        server.process.terminate()
        status, said = server.end()
    lines = [json.loads(line) for line in said.splitlines()]
    assert status == 0
    assert any(line["logger"].startswith("opentelemetry") and "403" in line["message"] for line in lines)
    assert any("4 were lost" in line["message"] for line in lines)


@pytest.mark.slow
def test_a_collector_that_isnt_there_doesnt_matter_to_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as gone:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.url)
    with serving(tmp_path, "--otel") as server:
        assert server.client.post("/basic_generate", json=BODY).status_code == 200
        server.process.terminate()
        status, said = server.end()
    assert status == 0
    assert "4 were lost" in said
    assert "Traceback" not in said


def test_without_the_extra_the_setting_is_refused_in_a_line_that_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    done = subprocess.run(
        command("--port", "0", "--otel"),
        capture_output=True,
        text=True,
        env=environment(tmp_path) | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["everystep: --otel needs OpenTelemetry: pip install 'everystep[otel]'"]


def test_without_the_setting_nothing_is_imported_that_could_trace(tmp_path: Path) -> None:
    """The framework itself imports OpenTelemetry's empty interface."""
    script = f"""
import sys
import everystep.serve
from everystep.api import create_app
from everystep.config import Settings
create_app(Settings(model={str(TINY)!r}, runner="fake"))
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(tmp_path), timeout=DEADLINE_S
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
