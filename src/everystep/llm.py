"""Offline generation: the engine without a server, a process or an event loop.

Owns :class:`LLM`.  It drives the same core, lanes and text handling as the server.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from everystep.checkpoint import open_checkpoint
from everystep.engine.bootstrap import build_core
from everystep.engine.choice import Choice, fan_out
from everystep.engine.door import check_request
from everystep.engine.recording import check_record
from everystep.engine.runners import cache_dir
from everystep.errors import EngineUnavailable, EverystepError, InvalidRequest, UnsupportedOption
from everystep.interrupts import interrupted_between_steps
from everystep.messages import Abort, Delta, GenerationRequest
from everystep.observe.observer import Observer
from everystep.sampling_params import SamplingParams
from everystep.settings_sources import load_settings
from everystep.text import Tokenizer
from everystep.types import FinishReason, Runner, SampledToken, TokenEvent

Prompt = str | Sequence[int]

MAX_SLEEP_S = 0.25  # between two looks for Ctrl-C


@dataclass(frozen=True, slots=True)
class CompletionChoice:
    """One of a prompt's ``n`` continuations."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: tuple[SampledToken, ...] = ()  # filled where params.logprobs is set


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt and what came of it.  ``text``, ``token_ids``, ``finish_reason`` are the first choice's."""

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    choices: tuple[CompletionChoice, ...]
    num_cached_tokens: int = 0

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason


@dataclass(slots=True)
class _Parts:
    """What has come of one choice so far."""

    text: list[str] = field(default_factory=list)
    tokens: list[SampledToken] = field(default_factory=list)
    last: Delta | None = None


class LLM:
    """A model, ready to generate.

    Takes every setting of ``everystep serve`` by name: ``LLM("smollm2-135m", precision="f32", prefix_cache=False)``;
    ``policy`` is the lane to use (``continuous``, or the runner's only one).  ``make_runner`` puts a runner of the
    caller's in place.  Not thread-safe.  Raises :class:`everystep.errors.ConfigError` for settings,
    :class:`UnsupportedOption` for tracing, which only a server does, :class:`ModelError` for models.
    """

    def __init__(
        self,
        model: str = "smollm2-135m",
        *,
        policy: str | None = None,
        make_runner: Callable[[], Runner] | None = None,
        **settings: Any,
    ) -> None:
        if policy is not None:
            settings["default_policy"] = policy
        if settings.get("otel"):
            raise UnsupportedOption("otel: only a server traces its requests, not an LLM without one", param="otel")
        self.settings = load_settings({"model": model, **settings})
        check_record(self.settings)
        self._is_closed = False
        self._epoch_s = time.monotonic()
        checkpoint = open_checkpoint(model, cache_dir(self.settings))
        self.tokenizer = Tokenizer(checkpoint.tokenizer)
        self._vocab_size = min(self.tokenizer.vocab_size, checkpoint.outline.vocab_size)
        runner = make_runner() if make_runner else None
        self.core, self.info = build_core(self.settings, now_s=self._now_s, runner=runner)
        self.observer = Observer(policies=tuple(self.core.lanes), step_log_size=self.settings.step_log_size)
        self._random = random.Random(self.settings.seed)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        policy: str | None = None,
        priority: int = 0,
    ) -> list[Completion]:
        """Continue each prompt (text, or token ids) under ``params``; in the order of the prompts.

        Raises the typed error of whatever makes a prompt unservable, before anything runs.  Ctrl-C is heeded between
        two steps; afterwards, as after any error, nothing is left running and the next call is served.
        """
        if self._is_closed:
            raise EngineUnavailable("this LLM is closed; make another")
        texts = _as_list(prompts)
        request = GenerationRequest(
            request_id=f"llm-{uuid.uuid4().hex[:12]}",
            prompts=tuple(self._encode(prompt) for prompt in texts),
            params=params or SamplingParams(),
            policy=policy or self._default_lane,
            priority=priority,
        )
        check_request(request, self.info, self.settings, self._vocab_size)
        with interrupted_between_steps() as look:
            choices = self._submit(request)
            parts = {choice.sequence_id: _Parts() for choice in choices}
            try:
                self._run(choices, parts, look)
            finally:
                self._abort(choices)  # Ctrl-C, or an error above: leave no sequence behind
        return _completions(texts, request, choices, parts)

    def close(self) -> None:
        """Free the model.  Afterwards ``generate`` raises :class:`EngineUnavailable`."""
        if not self._is_closed:
            self._is_closed = True
            self.core.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _default_lane(self) -> str:
        lane = self.settings.default_policy
        return lane if lane in self.info.seats else next(iter(self.info.seats))

    def _now_s(self) -> float:
        return time.monotonic() - self._epoch_s

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode_prompt(prompt))
        if not isinstance(prompt, Sequence):
            raise InvalidRequest(f"a prompt is a text or a sequence of token ids, not {prompt!r:.40}")
        return tuple(self._checked_id(token_id) for token_id in prompt)

    def _checked_id(self, token_id: object) -> int:
        """Neither True nor 1.0 nor "1" is a token id, though each could be made one."""
        vocab_size = self.tokenizer.vocab_size
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise InvalidRequest(f"{token_id!r:.40} is no token id; they are integers from 0 to {vocab_size - 1}")
        return token_id

    def _submit(self, request: GenerationRequest) -> list[Choice]:
        submits = fan_out(
            request,
            eos_token_ids=self.tokenizer.eos_token_ids,
            draw_seed=lambda: self._random.getrandbits(64),
            arrival_s=self._now_s(),
        )
        for submit in submits:
            self.observer.accepted(submit)
            self.core.submit(submit)
        return [Choice(index, submit, self.tokenizer) for index, submit in enumerate(submits)]

    def _run(self, choices: list[Choice], parts: dict[str, _Parts], look: Callable[[], None]) -> None:
        open_choices = {choice.sequence_id: choice for choice in choices}
        while open_choices:
            look()
            output = self.core.step()
            events = self.core.take_events()
            if output is not None:
                self.observer.step(output)
                events = (*output.events, *events)
            elif not events:
                self._sleep_until_ready()
            for event in events:
                self._deliver(event, open_choices, parts)

    def _deliver(self, event: TokenEvent, open_choices: dict[str, Choice], parts: dict[str, _Parts]) -> None:
        choice = open_choices.get(event.sequence_id)
        if choice is None:
            return
        delta = choice.take(event)
        part = parts[event.sequence_id]
        part.text.append(delta.text)
        part.tokens += delta.tokens
        if event.token is not None:
            self.observer.token(event.sequence_id, self._now_s())
        if delta.finish_reason is None:
            return
        part.last = delta
        del open_choices[event.sequence_id]
        self.observer.finished(event.sequence_id, delta.finish_reason, self._now_s())
        if event.finish_reason is None:  # a stop string
            self.core.abort(Abort(event.sequence_id, FinishReason.STOP))

    def _sleep_until_ready(self) -> None:
        """A static lane that waits for company knows when it will start without it."""
        ready_s = self.core.next_ready_s()
        if ready_s is None:
            raise EverystepError("no lane can run, though sequences are open: this is a bug in a policy")
        time.sleep(min(MAX_SLEEP_S, max(0.0, ready_s - self._now_s())))

    def _abort(self, choices: list[Choice]) -> None:
        for choice in choices:
            if not choice.is_ended:
                self.core.abort(Abort(choice.sequence_id, FinishReason.ABORTED))
                self.observer.finished(choice.sequence_id, FinishReason.ABORTED, self._now_s())
        self.core.take_events()


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or several; a bare list of integers is one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _completions(
    texts: list[Prompt], request: GenerationRequest, choices: list[Choice], parts: dict[str, _Parts]
) -> list[Completion]:
    n = request.params.n
    done = [_choice(parts[choice.sequence_id], request.params) for choice in choices]
    cached = [_last(parts[choice.sequence_id]).num_cached_tokens for choice in choices]
    return [
        Completion(
            prompt=text if isinstance(text, str) else None,
            prompt_token_ids=request.prompts[p],
            choices=tuple(done[p * n : (p + 1) * n]),
            num_cached_tokens=max(cached[p * n : (p + 1) * n]),
        )
        for p, text in enumerate(texts)
    ]


def _choice(part: _Parts, params: SamplingParams) -> CompletionChoice:
    last = _last(part)
    if last.failure is not None:
        raise last.failure
    assert last.finish_reason is not None
    return CompletionChoice(
        text="".join(part.text),
        token_ids=tuple(token.token_id for token in part.tokens),
        finish_reason=str(last.finish_reason),
        stop_reason=last.stop_reason,
        logprobs=tuple(part.tokens) if params.logprobs is not None else (),
    )


def _last(part: _Parts) -> Delta:
    assert part.last is not None, "a choice ended without its last delta"
    return part.last


__all__ = ["LLM", "Completion", "CompletionChoice"]
