"""Spans on their way to a collector: OpenTelemetry's SDK, set up by its own ``OTEL_*`` variables.

Owns the tracer, the thread that tells requests' lives, the bound on what waits, and the count of what was sent and what
was lost.  Nothing here waits for a collector on the event loop, and a dead one costs a server's end a bounded time.
Ignorant of what spans say.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from opentelemetry import propagate
from opentelemetry.environment_variables import OTEL_TRACES_EXPORTER
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, format_span_id, format_trace_id, set_span_in_context

from everystep.errors import ConfigError
from everystep.observe.request_log import RequestSnapshot
from everystep.observe.spans import SpanData, Value, seats_of, tell_spans
from everystep.version import __version__

logger = logging.getLogger(__name__)

FLUSH_S = 2.0  # what a server's end waits for a collector
MAX_UNTOLD = 256  # ended requests whose lives wait to be told; each holds a list of the steps it saw
DEFAULT_MAX_WAITING = 2_048  # spans, where OTEL_BSP_MAX_QUEUE_SIZE doesn't say otherwise; OpenTelemetry's own default
SENT, FAILED, DROPPED = "sent", "failed", "dropped"
OTLP_HTTP = "http/protobuf"


class SpanCounts:
    """Spans by what became of them.  Told from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {SENT: 0, FAILED: 0, DROPPED: 0}
        self.num_waiting = 0  # taken in, and neither sent nor failed

    def take_in(self, max_waiting: int) -> bool:
        """Whether there is room for one more; it is counted as dropped where there is none."""
        with self._lock:
            if self.num_waiting >= max_waiting:
                self._counts[DROPPED] += 1
                return False
            self.num_waiting += 1
            return True

    def let_out(self, outcome: str, num: int) -> None:
        with self._lock:
            self.num_waiting -= num
            self._counts[outcome] += num

    def drop(self) -> None:
        with self._lock:
            self._counts[DROPPED] += 1

    def by_outcome(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


class Exporting:
    """A tracer of our own, so that nothing else in the process is traced by it."""

    def __init__(self, exporter: SpanExporter) -> None:
        """``exporter`` is closed with this."""
        self.counts = SpanCounts()
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(_Bounded(_Counted(exporter, self.counts), self.counts))
        self._tracer = self._provider.get_tracer("everystep", __version__)
        self._is_closed = False
        self._untold: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_UNTOLD)
        self._teller = threading.Thread(target=self._tell, name="everystep-spans", daemon=True)
        self._teller.start()

    @classmethod
    def from_environment(cls) -> Exporting:
        """Raises :class:`ConfigError` for a variable that makes no sense."""
        try:
            return cls(OTLPSpanExporter())
        except (ValueError, OSError) as error:
            raise ConfigError(f"OTEL_*: {error}", param="otel") from error

    def start(
        self, name: str, attributes: Mapping[str, Value], headers: Mapping[str, str], start_s: float, zero_ns: int
    ) -> StartedSpan:
        """A span whose parent, and whether it is sampled, ``headers`` may say.

        Moments are seconds after ``zero_ns``, which is nanoseconds since 1970.
        """
        parent = propagate.extract(headers)
        start_ns = zero_ns + int(start_s * 1e9)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, dict(attributes), start_time=start_ns)
        return StartedSpan(self, span, start_s, zero_ns)

    def finish(self, job: Callable[[], None]) -> None:
        """Let ``job`` make spans in the teller's thread, soon."""
        try:
            self._untold.put_nowait(job)
        except queue.Full:
            self.counts.drop()

    @property
    def tracer(self) -> Tracer:
        return self._tracer

    def _tell(self) -> None:
        while (job := self._untold.get()) is not None:
            try:
                job()
            except Exception:
                logger.exception("a request's spans can't be told")

    async def close(self) -> None:
        """Send what there is, for ``FLUSH_S`` at most.  What isn't sent then is lost, and its number is said."""
        if self._is_closed:
            return
        self._is_closed = True
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def flush() -> None:
            self._untold.put(None)
            self._teller.join()
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(is_done.set)

        # A thread of its own, which no end of a process waits for.
        threading.Thread(target=flush, name="everystep-spans-flush", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(is_done.wait(), FLUSH_S)
        counts = self.counts.by_outcome()
        num_lost = counts[FAILED] + counts[DROPPED] + self.counts.num_waiting
        if num_lost:
            logger.warning("%d spans were sent to the collector, %d were lost", counts[SENT], num_lost)


class StartedSpan:
    """The span of a request that is being handled."""

    def __init__(self, exporting: Exporting, span: Span, start_s: float, zero_ns: int) -> None:
        context = span.get_span_context()
        self.start_s = start_s
        self.is_recording = span.is_recording()
        self.trace_id = format_trace_id(context.trace_id) if context.is_valid else None
        self.span_id = format_span_id(context.span_id) if context.is_valid else None
        self._exporting = exporting
        self._span = span
        self._zero_ns = zero_ns

    def end(
        self, attributes: Mapping[str, Value], end_s: float, *, is_error: bool, snapshot: RequestSnapshot | None
    ) -> None:
        """With the spans of ``snapshot`` as children, where there is one."""

        def tell() -> None:
            children = tell_spans(snapshot) if snapshot is not None else ()
            for child in children:
                self._tell(child, self._span)
            self._span.set_attributes(dict(attributes))
            if seats := seats_of(children):
                self._span.set_attribute("everystep.seats", seats)
            if is_error:
                self._span.set_status(StatusCode.ERROR)
            self._span.end(self._ns(end_s))

        self._exporting.finish(tell)

    def _tell(self, data: SpanData, parent: Span) -> None:
        span = self._exporting.tracer.start_span(
            data.name, set_span_in_context(parent), attributes=dict(data.attributes), start_time=self._ns(data.start_s)
        )
        for child in data.children:
            self._tell(child, span)
        span.end(self._ns(data.end_s))

    def _ns(self, at_s: float) -> int:
        return self._zero_ns + int(at_s * 1e9)


class _Bounded(SpanProcessor):
    """Hands ended spans to the SDK's batches, which go out from a thread of theirs; as many as there is room for."""

    def __init__(self, exporter: SpanExporter, counts: SpanCounts) -> None:
        self._batches = BatchSpanProcessor(exporter)
        self._counts = counts
        self._max_waiting = _max_waiting()

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled and self._counts.take_in(self._max_waiting):
            self._batches.on_end(span)

    def shutdown(self) -> None:
        self._batches.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._batches.force_flush(timeout_millis)


class _Counted(SpanExporter):
    """Another exporter, and what became of what it was given."""

    def __init__(self, exporter: SpanExporter, counts: SpanCounts) -> None:
        self._exporter = exporter
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._counts.let_out(SENT if result is SpanExportResult.SUCCESS else FAILED, len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _resource() -> Resource:
    """``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` go before what we say of ourselves."""
    own = Resource.create({"service.name": "everystep", "service.version": __version__})
    return own.merge(OTELResourceDetector().detect())


def _max_waiting() -> int:
    """The SDK has read it before, and said so if it is none."""
    given = os.environ.get(OTEL_BSP_MAX_QUEUE_SIZE, "")
    return int(given) if given.isdecimal() else DEFAULT_MAX_WAITING


def check_environment() -> None:
    """Raise :class:`ConfigError` for a variable that asks for one of OpenTelemetry's exporters that isn't here."""
    protocols = (OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, OTEL_EXPORTER_OTLP_PROTOCOL)
    allowed = {OTEL_TRACES_EXPORTER: "otlp", **dict.fromkeys(protocols, OTLP_HTTP)}
    for name, value in allowed.items():
        given = os.environ.get(name) or value
        if given != value:
            raise ConfigError(f"{name}={given}: only {value} is supported", param="otel")
