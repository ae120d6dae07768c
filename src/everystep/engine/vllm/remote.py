"""A vLLM server that runs elsewhere, behind the same ``submit / abort / events``.

Owns the connections: one stream for each open sequence, whose closing is its abort, and a look at the server each
second.  Ignorant of what is in a request.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import httpx

from everystep.config import Settings
from everystep.engine.codec import FromWorker, ToWorker
from everystep.engine.vllm.completions import RemoteFailure, body_of, failure_of, read_line
from everystep.engine.vllm.host_args import LANE
from everystep.engine.vllm.server_metrics import read_load
from everystep.messages import (
    Abort,
    EngineInfo,
    EngineStatus,
    FailureKind,
    SequenceFailure,
    SequenceStart,
    Submit,
    SubmitAll,
    VllmLoad,
    VllmNews,
)
from everystep.text import Tokenizer

logger = logging.getLogger(__name__)

LOOK_S = 1.0
# A stream may be silent for as long as its sequence waits; deadlines are the client's business.
STREAM_TIMEOUT = httpx.Timeout(None, connect=5.0)
LOOK_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
SAMPLE = "Hello, world! Zwölf Boxkämpfer, 1234 + 5 = 1239."


class RemoteVllm:
    """One server, on one event loop.  ``tokenizer`` is ours: the server must read text as it does."""

    def __init__(
        self,
        settings: Settings,
        tokenizer: Callable[[], Tokenizer],
        *,
        epoch_s: float,
        on_message: Callable[[FromWorker], None],
    ) -> None:
        assert settings.vllm_url is not None
        self.info: EngineInfo | None = None
        self.last_words = ""
        self.settled = asyncio.Event()
        self.given_up = asyncio.Event()  # never set: the server may come back
        self.is_spawning = False
        self.worker_pid: int | None = None
        self._url = settings.vllm_url.rstrip("/").removesuffix("/v1").rstrip("/")
        self._settings = settings
        self._make_tokenizer = tokenizer
        self._epoch_s = epoch_s
        self._on_message = on_message
        self._model = ""
        self._is_reachable = False
        self._load = VllmLoad(0, 0, 0.0, 0, 0)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._http = self._make_http()

    def _make_http(self) -> httpx.AsyncClient:
        key = self._settings.vllm_api_key
        return httpx.AsyncClient(
            base_url=self._url,
            headers={"Authorization": f"Bearer {key.get_secret_value()}"} if key else {},
            timeout=STREAM_TIMEOUT,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,  # a proxy for the web is no way to a server that the user named
        )

    def start(self, after: asyncio.Event | None = None) -> None:
        """At once, whatever ``after`` is: looking costs nothing."""
        self._looking = asyncio.create_task(self._keep_looking(), name="everystep-vllm-url")

    async def stop(self) -> None:
        tasks = [task for task in (self._looking, *self._tasks.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    def kill(self) -> None:
        """The server isn't ours to end."""

    def send(self, message: ToWorker) -> None:
        match message:
            case SubmitAll():
                for submit in message.submits:
                    self._tasks[submit.sequence_id] = asyncio.create_task(self._generate(submit))
            case Abort():
                if task := self._tasks.pop(message.sequence_id, None):
                    task.cancel()  # which closes the connection: vLLM aborts the request

    def status(self, *, is_draining: bool, has_tokenizer: bool) -> EngineStatus:
        is_ready = self._is_reachable and has_tokenizer and not is_draining
        if is_ready:
            reason = ""
        elif is_draining:
            reason = "the server is shutting down"
        else:
            reason = self.last_words or f"vLLM at {self._url} hasn't answered yet"
        return EngineStatus(is_live=True, is_ready=is_ready, reason=reason, info=self.info)

    # --- one sequence ----------------------------------------------------------------------------
    async def _generate(self, submit: Submit) -> None:
        name = submit.sequence_id
        try:
            await self._stream(submit)
        except RemoteFailure as error:
            self._fail(name, error.kind, str(error))
        except httpx.ConnectError as error:
            self._note_unreachable(error)
            self._fail(name, FailureKind.UNAVAILABLE, "it isn't reachable")
        except httpx.HTTPError as error:
            self._fail(name, FailureKind.FAILED, f"the connection broke: {_words(error)}")
        except Exception as error:  # whatever it is, the sequence's client is owed an end
            logger.exception("reading vLLM's answer failed")
            self._fail(name, FailureKind.FAILED, _words(error))
        finally:
            self._tasks.pop(name, None)

    async def _stream(self, submit: Submit) -> None:
        name, is_started, is_ended = submit.sequence_id, False, False
        async with self._http.stream("POST", "/v1/completions", json=body_of(submit, self._model)) as reply:
            if reply.status_code != httpx.codes.OK:
                raise failure_of(reply.status_code, await reply.aread())
            async for line in reply.aiter_lines():
                events = read_line(line, name, submit.params.logprobs)
                if not events:
                    continue
                started = () if is_started else (SequenceStart(name, self._now_s()),)
                is_started = True
                is_ended = is_ended or events[-1].finish_reason is not None
                self._on_message(VllmNews(self._now_s(), started, events))
        if not is_ended:
            raise RemoteFailure("its stream ended before the text did")

    def _fail(self, name: str, kind: FailureKind, words: str) -> None:
        failure = SequenceFailure(name, kind, f"vLLM at {self._url}: {words}")
        self._on_message(VllmNews(self._now_s(), failures=(failure,)))

    # --- the server ------------------------------------------------------------------------------
    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # a server may answer anything; this look must not be the last
                self._note_unreachable(error)
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        if not self._is_reachable:
            await self._meet()
        metrics = await self._http.get("/metrics", timeout=LOOK_TIMEOUT)
        if metrics.status_code == httpx.codes.OK:
            self._tell_load(read_load(metrics.text))

    def _tell_load(self, load: VllmLoad) -> None:
        self._load = load
        self._on_message(VllmNews(self._now_s(), load=load))

    async def _meet(self) -> None:
        """Learn what it serves, and that it reads text as we do."""
        reply = await self._http.get("/v1/models", timeout=LOOK_TIMEOUT)
        if reply.status_code != httpx.codes.OK:
            raise failure_of(reply.status_code, reply.content)
        try:
            card: dict[str, Any] = reply.json()["data"][0]
            self._model, max_model_len = str(card["id"]), int(card["max_model_len"])
        except (ValueError, LookupError, TypeError) as error:
            raise RemoteFailure("its /v1/models isn't vLLM's") from error
        await self._check_tokenizer()
        self.info = self._describe(max_model_len)
        self._is_reachable, self.last_words = True, ""
        self.settled.set()
        logger.info("vLLM at %s serves %s, context %d", self._url, self._model, max_model_len)

    async def _check_tokenizer(self) -> None:
        """Ids of another vocabulary would give another text, and nobody would know why."""
        body = {"model": self._model, "prompt": SAMPLE, "add_special_tokens": False}
        reply = await self._http.post("/tokenize", json=body, timeout=LOOK_TIMEOUT)
        if reply.status_code != httpx.codes.OK:
            logger.warning("vLLM at %s has no /tokenize: whether it serves the same model isn't checked", self._url)
            return
        theirs = list(reply.json().get("tokens", []))
        tokenizer = await asyncio.to_thread(self._make_tokenizer)
        if tokenizer.encode_prompt(SAMPLE)[-len(theirs) :] != theirs:
            raise RemoteFailure(f"it serves {self._model}, whose tokenizer isn't that of {self._settings.model}")

    def _describe(self, max_model_len: int) -> EngineInfo:
        """A server doesn't tell the size of its cache: what doesn't fit is vLLM's to refuse."""
        return EngineInfo(
            model=self._settings.served_name,
            runner="vllm",
            precision="remote",
            num_threads=0,
            block_size=1,
            num_blocks=max_model_len,
            kv_block_bytes=0,
            max_model_len=max_model_len,
            seats={LANE: self._settings.max_num_seqs},
            start_up_s={},
        )

    def _note_unreachable(self, error: Exception) -> None:
        words = f"vLLM at {self._url} isn't usable: {_words(error)}"
        if words != self.last_words:
            logger.log(logging.ERROR if self._is_reachable else logging.WARNING, "%s", words)
        self._is_reachable, self.last_words = False, words
        self._tell_load(dataclasses.replace(self._load, num_running=0, num_waiting=0, kv_cache_usage=0.0))

    def _now_s(self) -> float:
        return time.monotonic() - self._epoch_s


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
