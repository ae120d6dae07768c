"""What is refused before it waits: requests that can never be served, and any when the line is full.

Owns the bounds of the line and their messages.  Ignorant of how a request came.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from everystep.config import Settings
from everystep.engine.drain import Drain
from everystep.engine.vllm.host_args import LANE as VLLM
from everystep.engine.vllm.sampling import refuse_undone
from everystep.errors import InvalidParameter, InvalidRequest, QueueFull, UnsupportedOption
from everystep.messages import EngineInfo, GenerationRequest
from everystep.sampling_params import SamplingParams
from everystep.sched import check_fits

MAX_RETRY_AFTER_S = 60.0  # clients of OpenAI's make, the older ones, take a longer time for none and come at once


def check_request(request: GenerationRequest, info: EngineInfo, settings: Settings, vocab_size: int) -> None:
    """Raise the typed error of whatever makes this request unservable for ever."""
    params = request.params
    check_lane(request.policy, info.seats)
    if request.policy == VLLM:
        refuse_undone(params)
        if settings.vllm_url is not None and request.priority != 0:  # such a server may ignore it, and doesn't say so
            raise UnsupportedOption(f"priority={request.priority}: not with --vllm-url", param="priority")
    check_generates(params)
    _check_deadline(request.timeout_s, settings.request_timeout)
    num_sequences = len(request.prompts) * params.n
    if num_sequences > settings.max_queue:
        raise InvalidRequest(
            f"the request has {num_sequences} sequences; the line holds at most {settings.max_queue} (--max-queue)"
        )
    num_prompt_tokens = sum(map(len, request.prompts)) * params.n
    if num_prompt_tokens > settings.max_queue_tokens:
        raise InvalidRequest(
            f"the request has {num_prompt_tokens} prompt tokens; the line holds at most "
            f"{settings.max_queue_tokens} (--max-queue-tokens)"
        )
    for token_id in (*params.logit_bias, *params.stop_token_ids):
        if token_id >= vocab_size:
            raise InvalidParameter(f"token id {token_id} is outside the vocabulary of {vocab_size}")
    for index, prompt_ids in enumerate(request.prompts):
        if (last := max(prompt_ids, default=0)) >= vocab_size:  # a tokenizer may have tokens that the model hasn't
            raise InvalidRequest(f"the prompt has token {last}; the model's last is {vocab_size - 1}", param="prompt")
        check_fits(
            len(prompt_ids),
            _max_tokens_of(request, index),
            max_model_len=info.max_model_len,
            cache_tokens=info.num_blocks * info.block_size,
        )


def _max_tokens_of(request: GenerationRequest, prompt: int) -> int:
    params = request.params_of(prompt)
    check_generates(params)
    return params.max_tokens


def _check_deadline(timeout_s: float | None, limit_s: float | None) -> None:
    """A request may have less time than the server gives, not more."""
    if timeout_s is None:
        return
    if not 0 < timeout_s < math.inf:
        raise InvalidParameter(f"timeout_s={timeout_s:g} must be a finite number above 0", param="timeout_s")
    if limit_s is not None and timeout_s > limit_s:
        raise InvalidParameter(
            f"timeout_s={timeout_s:g} is above the server's own {limit_s:g} (--request-timeout)", param="timeout_s"
        )


def check_generates(params: SamplingParams) -> None:
    """Raise :class:`InvalidParameter` for parameters that ask for no token."""
    if params.max_tokens < 1:
        raise InvalidParameter("max_tokens=0 generates nothing; at least 1 is needed", param="max_tokens")


def check_lane(name: str, lanes: Collection[str]) -> None:
    """Raise :class:`InvalidParameter` for a lane that isn't among those of the server."""
    if name not in lanes:
        raise InvalidParameter(f"policy={name!r} must be one of {', '.join(lanes)}", param="policy")


@dataclass(frozen=True, slots=True)
class Promise:
    """When somebody who was refused was told to come again, and for how many places."""

    due_s: float
    num_sequences: int
    num_tokens: int


class Line:
    """How many sequences and prompt tokens wait in all lanes for their first seat, and how fast they get it.

    One that lost its seat to preemption waits again, but not here: it was let in, and can't be refused any more.
    """

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self.max_sequences = max_sequences
        self.max_tokens = max_tokens
        self._waiting: dict[str, int] = {}  # sequence id → prompt tokens
        self._num_tokens = 0
        self._drain = Drain()
        self._promises: list[Promise] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def check_room(self, num_sequences: int, num_tokens: int, now_s: float) -> None:
        """Raise :class:`QueueFull`, with an estimate of when to come again, if these don't fit, all of them."""
        if len(self._waiting) + num_sequences > self.max_sequences:
            words = f"{len(self._waiting)} sequences wait; the line holds {self.max_sequences} (--max-queue)"
        elif self._num_tokens + num_tokens > self.max_tokens:
            words = f"{self._num_tokens} prompt tokens wait; the line holds {self.max_tokens} (--max-queue-tokens)"
        else:
            return
        raise QueueFull(words, retry_after_s=self._retry_after_s(num_sequences, num_tokens, now_s))

    def enter(self, sequence_id: str, num_tokens: int, now_s: float) -> None:
        if not self._waiting:
            self._drain.form(now_s)
        self._waiting[sequence_id] = num_tokens
        self._num_tokens += num_tokens

    def start(self, sequence_ids: Iterable[str], now_s: float) -> None:
        """These got seats, together; those that didn't wait here are passed over."""
        starting = [name for name in sequence_ids if name in self._waiting]
        if starting:
            self._drain.start(len(starting), sum(self._waiting[name] for name in starting), now_s)
        for name in starting:
            self.leave(name)

    def leave(self, sequence_id: str) -> None:
        """The sequence waits no longer, for whatever cause."""
        num_tokens = self._waiting.pop(sequence_id, None)
        if num_tokens is None:
            return
        self._num_tokens -= num_tokens
        if not self._waiting:
            self._drain.empty()

    def _retry_after_s(self, num_sequences: int, num_tokens: int, now_s: float) -> float:
        """Whole seconds until what is too much has drained, and what those were told who are to come before.

        Without the latter all who were refused would come again at once, for the same few places.
        """
        self._promises = [promise for promise in self._promises if promise.due_s > now_s]
        promised = min(self.max_sequences, sum(promise.num_sequences for promise in self._promises))
        promised_tokens = min(self.max_tokens, sum(promise.num_tokens for promise in self._promises))
        lacking = len(self._waiting) + promised + num_sequences - self.max_sequences
        lacking_tokens = self._num_tokens + promised_tokens + num_tokens - self.max_tokens
        time_s = self._drain.time_for(max(0, lacking), max(0, lacking_tokens), now_s)
        retry_s = float(math.ceil(min(MAX_RETRY_AFTER_S, max(1.0, time_s))))
        if promised < self.max_sequences:  # one line's worth: who knocks without end makes nobody wait without end
            self._promises.append(Promise(now_s + retry_s, num_sequences, num_tokens))
        return retry_s
