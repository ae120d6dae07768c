"""Which requests are traced, and what the span of a request says of it.

Owns the attributes, by OpenTelemetry's conventions for generative AI and under ``everystep.*``, and the moments of a
span's begin and end.  Prompts, texts and messages of errors, which may quote them, have no way in.  Ignorant of how a
span is sent: that is :mod:`everystep.api.otel`, which alone needs OpenTelemetry and is imported where it is wanted.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from everystep.api.error_replies import error_type
from everystep.api.request_scope import FAILURE, GENERATION, REPLY, REQUEST_ID
from everystep.config import Settings
from everystep.engine.choice import Choice
from everystep.engine.client import EngineClient
from everystep.errors import ConfigError, EverystepError, http_status
from everystep.observe.request_log import RequestSnapshot
from everystep.observe.spans import MAX_SEQUENCES, Value
from everystep.types import FinishReason

if TYPE_CHECKING:
    from everystep.api.otel import Exporting, StartedSpan

CHAT, COMPLETION = "chat", "text_completion"
OPERATIONS = {  # path → gen_ai.operation.name
    "/basic_generate": COMPLETION,
    "/generate": COMPLETION,
    "/generate_stream": COMPLETION,
    "/generate_vllm": COMPLETION,
    "/try": COMPLETION,
    "/v1/completions": COMPLETION,
    "/v1/chat/completions": CHAT,
}
PROVIDER = "everystep"
MAX_PACKS = 12  # of steps that are read of one request: some 30 ms at most, in a thread of their own
UNAUTHORIZED, FAULTS_OF_CLIENTS, FAULTS_OF_OURS = 401, 400, 500


def check_tracing(settings: Settings) -> None:
    """Raise :class:`ConfigError` where traces are wanted, and what sends them isn't installed or can't be set up so."""
    if not settings.otel:
        return
    if not all(map(_is_installed, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))):
        raise ConfigError("--otel needs OpenTelemetry: pip install 'everystep[otel]'", param="otel")
    from everystep.api.otel import check_environment

    check_environment()


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def open_tracing(settings: Settings, engine: EngineClient) -> Tracing | None:
    """What the settings and OpenTelemetry's variables describe; ``None`` without ``--otel``."""
    if not settings.otel:
        return None
    check_tracing(settings)
    from everystep.api.otel import Exporting

    return Tracing(engine, Exporting.from_environment())


class Tracing:
    """Begins the span of each request that is to generate."""

    def __init__(self, engine: EngineClient, exporting: Exporting) -> None:
        self._engine = engine
        self._exporting = exporting
        engine.observer.metrics.num_spans = exporting.counts.by_outcome

    def begin(self, scope: Mapping[str, Any]) -> RequestSpan | None:
        """For requests that are to generate, whatever becomes of them."""
        operation = OPERATIONS.get(scope["path"])
        if operation is None or scope["method"] != "POST":
            return None
        model = self._engine.settings.served_name
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": model,
            "http.request.method": "POST",
            "http.route": scope["path"],
            **_server(scope.get("server")),
        }
        zero_ns = self._engine.zero_unix_ns()
        span = self._exporting.start(
            f"{operation} {model}", attributes, Headers(raw=scope["headers"]), self._engine.now_s(), zero_ns
        )
        return RequestSpan(self._engine, span)

    async def close(self) -> None:
        """Send what there is to send, within a bound."""
        await self._exporting.close()


class RequestSpan:
    """One request's, from its head to the end of its reply."""

    def __init__(self, engine: EngineClient, span: StartedSpan) -> None:
        self.trace_id = span.trace_id  # in hexadecimal, as logs want them; None where tracing is disabled
        self.span_id = span.span_id
        self._engine = engine
        self._span = span

    def end(self, scope: Mapping[str, Any]) -> None:
        """The reply is over, and so is every choice of the request.

        Nothing is sent of who wasn't let in: strangers make no work for a collector.
        """
        reply, failure = scope.get(REPLY), scope.get(FAILURE)
        status = None if reply is None else int(reply["status"])
        if status == UNAUTHORIZED or not self._span.is_recording:
            return
        end_s = self._engine.now_s()
        attributes: dict[str, Value] = {"everystep.request.id": scope[REQUEST_ID]}
        if reply is not None and status is not None:
            attributes |= {"http.response.status_code": status, **_kind(reply)}
        generation, snapshot = scope.get(GENERATION), None
        if generation is not None:
            snapshot = self._engine.observer.requests.waits(generation.request_id, MAX_PACKS)
            attributes["gen_ai.response.id"] = generation.request_id
            attributes["gen_ai.response.model"] = self._engine.settings.served_name
            attributes |= _asked(generation.choices) | _given(generation.choices, snapshot, self._span.start_s)
        error = _error(status, failure, snapshot)
        if error is not None:
            attributes["error.type"] = error
        is_error = (http_status(failure) if failure is not None else status or 0) >= FAULTS_OF_OURS
        self._span.end(attributes, end_s, is_error=is_error, snapshot=snapshot)


def _server(address: Any) -> dict[str, Value]:
    if not address:
        return {}
    host, port = address
    return {"server.address": host} | ({"server.port": port} if port is not None else {})


def _kind(reply: Mapping[str, Any]) -> dict[str, Value]:
    kind = Headers(raw=reply["headers"]).get("content-type", "")
    return {"gen_ai.request.stream": True} if kind.startswith("text/event-stream") else {}


def _asked(choices: Sequence[Choice]) -> dict[str, Value]:
    """Parameters; those that are optional in the conventions only where somebody set them."""
    submits = [choice.submit for choice in choices]
    params = submits[0].params
    asked: dict[str, Value] = {
        "gen_ai.request.max_tokens": max(submit.params.max_tokens for submit in submits),
        "gen_ai.request.temperature": float(params.temperature),
        "gen_ai.request.top_p": float(params.top_p),
        "everystep.lane": submits[0].policy,
        "everystep.num_sequences": len(submits),
        "everystep.sequence_ids": [submit.sequence_id for submit in submits[:MAX_SEQUENCES]],
    }
    optional: dict[str, tuple[Value | None, Value | None]] = {  # name → value, and which means that nobody set it
        "gen_ai.request.top_k": (params.top_k, 0),
        "gen_ai.request.frequency_penalty": (float(params.frequency_penalty), 0.0),
        "gen_ai.request.presence_penalty": (float(params.presence_penalty), 0.0),
        "gen_ai.request.seed": (_signed(params.seed), None),
        "gen_ai.request.choice.count": (params.n, 1),
        "everystep.priority": (submits[0].priority, 0),
    }
    return asked | {name: value for name, (value, unset) in optional.items() if value is not None and value != unset}


def _signed(seed: int | None) -> int | None:
    """The protocol's integers have a sign; the same 64 bits, as a client that sent a negative seed knows them."""
    return seed if seed is None or seed < 2**63 else seed - 2**64


def _given(choices: Sequence[Choice], snapshot: RequestSnapshot | None, begin_s: float) -> dict[str, Value]:
    """What the request came to.  A prompt counts once, whatever its number of choices, as in ``usage``."""
    n = choices[0].submit.params.n
    groups = [choices[first : first + n] for first in range(0, len(choices), n)]
    given: dict[str, Value] = {
        "gen_ai.usage.input_tokens": sum(len(group[0].submit.prompt_ids) for group in groups),
        "gen_ai.usage.cache_read.input_tokens": sum(min(one.num_cached_tokens for one in group) for group in groups),
    }
    if snapshot is None:  # so many came meanwhile that it is forgotten
        return given
    lives = snapshot.lives
    given["gen_ai.response.finish_reasons"] = [str(life.finish_reason) for life in lives]
    given["gen_ai.usage.output_tokens"] = sum(life.num_output_tokens for life in lives)
    given["everystep.num_preemptions"] = sum(life.num_preemptions for life in lives)
    firsts = [life.first_token_s for life in lives if life.first_token_s is not None]
    if firsts:
        given["everystep.ttft_s"] = min(firsts) - lives[0].arrival_s
        given["gen_ai.response.time_to_first_chunk"] = min(firsts) - begin_s
    return given


def _error(status: int | None, failure: EverystepError | None, snapshot: RequestSnapshot | None) -> str | None:
    """The type that the client is told; else the status, as the conventions of HTTP have it."""
    if failure is not None:
        return error_type(failure)
    if status is None or (snapshot and any(life.finish_reason is FinishReason.ABORTED for life in snapshot.lives)):
        return "client_gone"
    return str(status) if status >= FAULTS_OF_CLIENTS else None
