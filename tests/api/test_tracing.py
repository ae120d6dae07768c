"""What a request's trace says, whatever becomes of the request; seen by the in-memory exporter of OpenTelemetry."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import pkgutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import opentelemetry.semconv._incubating.attributes as experimental
import opentelemetry.semconv.attributes as stable
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from api.harness import FOREVER, Call, Server, serving, tiny_settings
from everystep.api import create_app
from everystep.api.tracing import OPERATIONS
from everystep.engine.client import EngineClient
from everystep.errors import ConfigError
from everystep.observe.logs import JsonFormatter

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"  # W3C's own example
SECRET = "Xyzzy plugh"
Spans = Sequence[ReadableSpan]


@dataclass
class Traced:
    """A server that traces into memory."""

    server: Server
    exporter: InMemorySpanExporter

    async def spans(self) -> Spans:
        """All of them, once the tracing has ended."""
        await self.server.app.state.tracing.close()
        return self.exporter.get_finished_spans()


Tracer = Callable[..., Any]


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Tracer:
    """Makes a traced server of settings."""

    @asynccontextmanager
    async def make(**settings: Any) -> AsyncIterator[Traced]:
        exporter = InMemorySpanExporter()
        monkeypatch.setattr("everystep.api.otel.OTLPSpanExporter", lambda: exporter)
        async with serving(otel=True, **settings) as server:
            yield Traced(server, exporter)

    return make


def root(spans: Spans) -> ReadableSpan:
    """The span of the one request."""
    (found,) = [span for span in spans if span.kind is SpanKind.SERVER]
    return found


def children(spans: Spans, parent: ReadableSpan) -> dict[str, ReadableSpan]:
    found = [span for span in spans if span.parent is not None and span.parent.span_id == span_id(parent)]
    assert len({span.name for span in found}) == len(found)
    return {span.name: span for span in sorted(found, key=lambda span: span.start_time or 0)}


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- the common case -------------------------------------------------------------------------------
async def test_a_request_is_a_span_with_its_phases_inside_one_after_the_other(tracing: Tracer) -> None:
    async with tracing() as traced:
        before_ns = time.time_ns()
        traced.server.runner.say("Say", "one two")
        reply = await traced.server.complete("Say", max_tokens=40, temperature=0.5, top_k=3, seed=7)
        after_ns = time.time_ns()
        spans = await traced.spans()
    span, usage = root(spans), reply.json()["usage"]
    phases = children(spans, span)
    assert list(phases) == ["queue", "prefill", "decode"]
    moments = [span.start_time, *(moment for one in phases.values() for moment in (one.start_time, one.end_time))]
    assert [*moments, span.end_time] == sorted([*moments, span.end_time])
    assert phases["queue"].end_time == phases["prefill"].start_time
    assert phases["prefill"].end_time == phases["decode"].start_time
    slack_ns = 50_000_000  # two readings of two clocks
    assert before_ns - slack_ns <= span.start_time <= span.end_time <= after_ns + slack_ns
    told = said(span)
    assert span.name == "text_completion tiny"
    assert span.status.status_code is StatusCode.UNSET
    assert "error.type" not in told
    assert told["everystep.ttft_s"] == pytest.approx(
        (phases["prefill"].end_time - phases["queue"].start_time) / 1e9, abs=1e-6
    )
    assert said(phases["queue"])["everystep.queue.causes"][0] == "arriving"
    assert {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "everystep",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 40,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 3,
        "gen_ai.request.seed": 7,
        "gen_ai.response.id": reply.json()["id"],
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "server.address": "tiny",
        "everystep.request.id": reply.headers["x-request-id"],
        "everystep.lane": "continuous",
        "everystep.num_sequences": 1,
        "everystep.sequence_ids": (f"{reply.json()['id']}-0",),
        "everystep.seats": (0,),
        "everystep.num_preemptions": 0,
    }.items() <= told.items()


async def test_every_name_is_one_of_the_conventions_or_our_own(tracing: Tracer) -> None:
    known = {
        value
        for package in (stable, experimental)
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for name, value in vars(importlib.import_module(module.name)).items()
        if name.isupper() and isinstance(value, str)
    }
    async with tracing() as traced:
        options = {"n": 2, "top_k": 2, "frequency_penalty": 0.1, "presence_penalty": 0.1, "seed": 1, "priority": 3}
        await traced.server.chat("Say", max_tokens=2, stream=True, **options)
        await traced.server.chat("Say", max_tokens=0)
        spans = await traced.spans()
    used = {name for span in spans for name in said(span)}
    assert len(used) > 25
    assert {name for name in used if not name.startswith("everystep.")} <= known


async def test_neither_prompts_nor_texts_nor_what_an_error_quotes_of_them_are_in_a_span(tracing: Tracer) -> None:
    async with tracing() as traced:
        server = traced.server
        server.runner.say(SECRET, SECRET)
        await server.complete(SECRET, max_tokens=50, stop=[SECRET + "!"])
        refused = await server.http.post("/basic_generate", json={"prompt": "x", "temperature": SECRET})
        assert SECRET in refused.text, "the client is told what it sent"
        spans = await traced.spans()
    text = "".join(span.to_json() for span in spans)
    assert len([span for span in spans if span.kind is SpanKind.SERVER]) == 2
    assert SECRET not in text
    assert "plugh" not in text


async def test_every_route_that_generates_is_traced(tracing: Tracer) -> None:
    async with tracing() as traced:
        paths = (await traced.server.http.get("/openapi.json")).json()["paths"]
        posts = {path for path, methods in paths.items() if "post" in methods}
        assert posts - {"/tokenize", "/detokenize"} == set(OPERATIONS)
        for path in ("/version", "/metrics", "/steps", "/health"):
            await traced.server.http.get(path)
        await traced.server.post("/tokenize", prompt="x")
        await traced.server.post("/nope")
        assert await traced.spans() == ()


# --- every end -------------------------------------------------------------------------------------
async def test_a_whole_reply_that_reached_its_length_says_so(tracing: Tracer) -> None:
    async with tracing() as traced:
        await traced.server.chat("Say", max_tokens=3, ignore_eos=True)
        span = root(await traced.spans())
    assert (span.name, said(span)["gen_ai.response.finish_reasons"]) == ("chat tiny", ("length",))
    assert "gen_ai.request.stream" not in said(span)


async def test_a_stream_is_told_as_one_with_its_first_token(tracing: Tracer) -> None:
    async with tracing() as traced:
        await traced.server.post("/generate_stream", prompt="Say", max_tokens=3, ignore_eos=True)
        told = said(root(await traced.spans()))
    assert told["gen_ai.request.stream"] is True
    assert told["everystep.lane"] == "per_token"
    assert told["gen_ai.response.time_to_first_chunk"] >= told["everystep.ttft_s"] > 0


async def test_several_prompts_and_choices_are_one_span_with_a_child_each(tracing: Tracer) -> None:
    async with tracing() as traced:
        reply = await traced.server.complete(["a", "b"], n=2, temperature=1, max_tokens=2, ignore_eos=True)
        spans = await traced.spans()
    span = root(spans)
    told, usage = said(span), reply.json()["usage"]
    assert told["gen_ai.request.choice.count"] == 2
    assert told["gen_ai.response.finish_reasons"] == ("length",) * 4
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == 8
    inside = [one for one in spans if one.parent is not None and one.parent.span_id == span_id(span)]
    assert [one.name for one in inside] == ["sequence"] * 4
    assert {said(one)["everystep.sequence.id"] for one in inside} == set(told["everystep.sequence_ids"])
    assert all(list(children(spans, one)) == ["queue", "prefill", "decode"] for one in inside)


async def test_what_was_found_in_the_cache_is_told_as_in_the_usage(tracing: Tracer) -> None:
    async with tracing() as traced:
        replies = [await traced.server.complete("a" * 200, max_tokens=1, seed=-1) for _ in range(2)]
        spans = await traced.spans()
    told = [said(span) for span in spans if span.kind is SpanKind.SERVER]
    cached = [reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    assert cached[0] == 0 < cached[1]
    assert [one["gen_ai.usage.cache_read.input_tokens"] for one in told] == cached
    assert [one["gen_ai.request.seed"] for one in told] == [-1, -1], "as the client wrote it"


@pytest.mark.parametrize("path", ["/basic_generate", "/generate_stream"])
async def test_who_leaves_is_told_as_gone_and_that_is_no_fault_of_ours(tracing: Tracer, path: str) -> None:
    async with tracing() as traced:
        server = traced.server
        server.runner.hold()
        body = json.dumps({"prompt": "x", "max_tokens": FOREVER, "ignore_eos": True}).encode()
        call = Call(server.app, path, body)
        await server.run_steps(2)
        call.leave()
        await call.task
        span = root(await traced.spans())
    assert said(span)["error.type"] == "client_gone"
    assert said(span)["gen_ai.response.finish_reasons"] == ("aborted",)
    assert span.status.status_code is StatusCode.UNSET


async def test_who_leaves_while_its_prompt_is_read_didnt_wait_all_the_while(
    tracing: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tracing() as traced:
        server, seats = traced.server, list[Any]()
        seated = server.engine.observer.seated
        server.runner.hold()
        monkeypatch.setattr(server.engine.observer, "seated", lambda *told: (seated(*told), seats.append(told)))
        call = Call(server.app, "/basic_generate", json.dumps({"prompt": "x"}).encode())
        while not seats:
            await asyncio.sleep(0)
        call.leave()
        await call.task
        spans = await traced.spans()
    phases = children(spans, root(spans))
    assert list(phases) == ["queue", "prefill"]
    assert phases["queue"].end_time == phases["prefill"].start_time


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_that_passes_is_an_error_of_ours(tracing: Tracer, stream: bool) -> None:
    async with tracing() as traced:
        traced.server.runner.hold()
        await traced.server.complete("x", stream=stream, max_tokens=5, timeout_s=0.01)
        span = root(await traced.spans())
    assert said(span)["error.type"] == "request_timeout"
    assert said(span)["gen_ai.response.finish_reasons"] == ("timeout",)
    assert said(span)["http.response.status_code"] == (200 if stream else 504)
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("stream", [False, True])
async def test_a_row_that_fails_is_an_error_of_ours(tracing: Tracer, stream: bool) -> None:
    async with tracing() as traced:
        server = traced.server
        server.runner.hold()
        task = asyncio.create_task(server.complete("x", stream=stream, max_tokens=9, ignore_eos=True))
        await server.run_steps(1)
        server.runner.fails[server.runner.last_seen.sequence_id] = "the row broke"
        server.runner.release()
        await task
        spans = await traced.spans()
    span = root(spans)
    assert said(span)["error.type"] == "engine_failed"
    assert said(span)["gen_ai.response.finish_reasons"] == ("failed",)
    assert span.status.status_code is StatusCode.ERROR
    assert list(children(spans, span)) == ["queue", "prefill", "decode"]


async def test_what_nobody_foresaw_is_an_error_of_ours_too(tracing: Tracer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everystep.api.native.TokenEvents.of", lambda self, delta: 1 / 0)
    async with tracing() as traced:
        await traced.server.post("/generate_stream", prompt="x", max_tokens=3, ignore_eos=True)
        span = root(await traced.spans())
    assert said(span)["error.type"] == "engine_failed"
    assert span.status.status_code is StatusCode.ERROR


async def test_who_finds_the_line_full_is_told_without_phases(tracing: Tracer) -> None:
    async with tracing(max_num_seqs=1, max_queue=1) as traced:
        server = traced.server
        server.runner.hold()
        tasks = [asyncio.create_task(server.complete("x", max_tokens=1)) for _ in range(4)]
        refused, *_ = [task.result() for task in await _first(tasks)]
        assert refused.status_code == 429
        server.runner.release()
        await asyncio.gather(*tasks)
        spans = await traced.spans()
    full = [span for span in spans if said(span).get("error.type") == "queue_full"]
    assert full
    assert all(said(span)["http.response.status_code"] == 429 for span in full)
    assert all(span.status.status_code is StatusCode.UNSET for span in full)
    assert all(children(spans, span) == {} for span in full)
    assert all("gen_ai.usage.input_tokens" not in said(span) for span in full)


async def _first(tasks: Sequence[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return done


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"max_tokens": -1}, 400, "invalid_parameter"),
        ({"model": "other"}, 404, "model_not_found"),
        ({"prompt": " a" * 3_000}, 400, "prompt_too_long"),
        ({"unknown": 1}, 400, "400"),
    ],
)
async def test_a_refused_request_is_a_span_that_says_why(
    tracing: Tracer, body: dict[str, Any], status: int, error: str
) -> None:
    async with tracing() as traced:
        reply = await traced.server.http.post("/v1/completions", json={"model": "tiny", "prompt": "x"} | body)
        (span,) = await traced.spans()
    assert reply.status_code == said(span)["http.response.status_code"] == status
    assert said(span)["error.type"] == error
    assert span.status.status_code is StatusCode.UNSET


async def test_who_isnt_let_in_leaves_no_trace(tracing: Tracer) -> None:
    async with tracing(api_key=("right",)) as traced:
        assert (await traced.server.complete("x", max_tokens=1)).status_code == 401
        assert await traced.spans() == ()


async def test_the_end_of_the_server_ends_what_is_open_and_sends_it(tracing: Tracer) -> None:
    async with tracing() as traced:
        traced.server.runner.hold()
        task = asyncio.create_task(traced.server.complete("x", max_tokens=5))
        await traced.server.run_steps(1)
        closing = asyncio.create_task(traced.server.engine.close())
        await task
        traced.server.runner.release()
        await closing
        span = root(await traced.spans())
    assert said(span)["error.type"] == "engine_unavailable"
    assert span.status.status_code is StatusCode.ERROR


# --- context ---------------------------------------------------------------------------------------
async def test_a_clients_trace_goes_on(tracing: Tracer) -> None:
    async with tracing() as traced:
        headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "vendor=1"}
        await traced.server.http.post("/basic_generate", json={"prompt": "x", "max_tokens": 1}, headers=headers)
        spans = await traced.spans()
    span = root(spans)
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (int(TRACE_ID, 16), int(PARENT_ID, 16))
    assert {one.context.trace_id for one in spans if one.context} == {int(TRACE_ID, 16)}
    assert span.context is not None
    assert span.context.trace_state.get("vendor") == "1"


@pytest.mark.parametrize("given", ["", "00-0-0-01", f"00-{'0' * 32}-{PARENT_ID}-01", "ff" + "x" * 60])
async def test_a_broken_traceparent_begins_a_trace_of_its_own(tracing: Tracer, given: str) -> None:
    async with tracing() as traced:
        body = {"prompt": "x", "max_tokens": 1}
        await traced.server.http.post("/basic_generate", json=body, headers={"traceparent": given})
        assert root(await traced.spans()).parent is None


async def test_what_the_client_doesnt_sample_isnt_sent(tracing: Tracer) -> None:
    async with tracing() as traced:
        body, headers = {"prompt": "x", "max_tokens": 1}, {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}
        reply = await traced.server.http.post("/basic_generate", json=body, headers=headers)
        assert reply.status_code == 200
        assert await traced.spans() == ()


async def test_opentelemetrys_own_variables_choose_the_sampler(
    tracing: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    async with tracing() as traced:
        assert (await traced.server.complete("x", max_tokens=1)).status_code == 200
        assert await traced.spans() == ()


async def test_what_the_service_is_called_is_opentelemetrys_to_say(
    tracing: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for variables in ({}, {"OTEL_SERVICE_NAME": "chat-backend"}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        async with tracing() as traced:
            await traced.server.complete("x", max_tokens=1)
            names.append(root(await traced.spans()).resource.attributes["service.name"])
    assert names == ["everystep", "chat-backend"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: only http/protobuf is supported"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "PROTOCOL=http/json: only http/protobuf is supported"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER=zipkin: only otlp is supported"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "max_queue_size must be a positive integer"),
    ],
)
def test_a_variable_that_asks_for_what_isnt_here_is_refused(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    settings = tiny_settings(otel=True)
    with pytest.raises(ConfigError) as caught:
        create_app(engine=EngineClient.in_process(settings))
    assert words in caught.value.message


async def test_without_the_setting_nothing_is_traced() -> None:
    async with serving() as server:
        assert server.app.state.tracing is None
        assert server.engine.observer.metrics.num_spans is None


# --- what a collector can't take -------------------------------------------------------------------
class Stuck(InMemorySpanExporter):
    """Takes its time, until the test lets go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = threading.Event()

    def export(self, spans: Spans) -> SpanExportResult:
        self.is_free.wait()
        return super().export(spans)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    exporter = Stuck()
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setattr("everystep.api.otel.OTLPSpanExporter", lambda: exporter)
    yield exporter
    exporter.is_free.set()


async def test_spans_beyond_the_bound_are_dropped_and_counted_and_requests_go_on(
    stuck: Stuck, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(otel=True) as server:
        for _ in range(3):
            assert (await server.complete("x", max_tokens=1)).status_code == 200
        while 'everystep_trace_spans_total{outcome="dropped"} 8.0' not in (await server.http.get("/metrics")).text:
            pass  # each question is a round trip
        stuck.is_free.set()
        await server.app.state.tracing.close()
        metrics = (await server.http.get("/metrics")).text
    assert 'everystep_trace_spans_total{outcome="sent"} 4.0' in metrics
    assert len(stuck.get_finished_spans()) == 4
    assert [record.getMessage() for record in caplog.records if "were lost" in record.getMessage()] == [
        "4 spans were sent to the collector, 8 were lost"
    ]


async def test_a_collector_that_hangs_holds_up_the_end_for_a_bounded_time_only(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("everystep.api.otel.FLUSH_S", 0.05)
    async with serving(otel=True) as server:
        await server.complete("x", max_tokens=1)
        await asyncio.wait_for(server.app.state.tracing.close(), 30)
        assert stuck.get_finished_spans() == ()
    assert "0 spans were sent to the collector, 4 were lost" in caplog.text


async def test_spans_that_a_collector_refuses_are_counted(
    tracing: Tracer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with tracing() as traced:
        monkeypatch.setattr(traced.exporter, "export", lambda spans: SpanExportResult.FAILURE)
        await traced.server.complete("x", max_tokens=1)
        assert await traced.spans() == ()
        metrics = (await traced.server.http.get("/metrics")).text
    assert 'everystep_trace_spans_total{outcome="failed"} 4.0' in metrics
    assert "4 were lost" in caplog.text


# --- logs ------------------------------------------------------------------------------------------
async def test_a_line_of_a_traced_requests_log_names_its_span(tracing: Tracer) -> None:
    lines: list[dict[str, Any]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
    logging.getLogger("everystep").addHandler(handler)
    try:
        async with tracing(log_prompts=True) as traced:
            logging.getLogger("everystep").setLevel(logging.INFO)
            reply = await traced.server.complete("x", max_tokens=1)
            span = root(await traced.spans())
    finally:
        logging.getLogger("everystep").removeHandler(handler)
    (line,) = [line for line in lines if "prompt 1 of 1" in line["message"]]
    assert span.context is not None
    assert line["request_id"] == reply.headers["x-request-id"]
    assert line["trace_id"] == f"{span.context.trace_id:032x}"
    assert line["span_id"] == f"{span.context.span_id:016x}"
