"""What is refused before it waits: requests that can never be served, and any when the line is full.

Owns the bounds of the line and their messages.  Ignorant of how a request came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from everystep.config import Settings
from everystep.engine.vllm.host_args import LANE as VLLM
from everystep.engine.vllm.sampling import refuse_undone
from everystep.errors import InvalidParameter, InvalidRequest, QueueFull, UnsupportedOption
from everystep.messages import EngineInfo, GenerationRequest
from everystep.sched import check_fits

DRAIN_WINDOW = 64  # starts over which the drain rate is measured
MAX_RETRY_AFTER_S = 60.0


def check_request(request: GenerationRequest, info: EngineInfo, settings: Settings, vocab_size: int) -> None:
    """Raise the typed error of whatever makes this request unservable for ever."""
    params = request.params
    check_lane(request.policy, info.seats)
    if request.policy == VLLM:
        refuse_undone(params)
        if settings.vllm_url is not None and request.priority != 0:  # such a server may ignore it, and doesn't say so
            raise UnsupportedOption(f"priority={request.priority}: not with --vllm-url", param="priority")
    if params.max_tokens < 1:
        raise InvalidParameter("max_tokens=0 generates nothing; at least 1 is needed", param="max_tokens")
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
    for prompt_ids in request.prompts:
        check_fits(
            len(prompt_ids),
            params.max_tokens,
            max_model_len=info.max_model_len,
            cache_tokens=info.num_blocks * info.block_size,
        )


def check_lane(name: str, lanes: Collection[str]) -> None:
    """Raise :class:`InvalidParameter` for a lane that isn't among those of the server."""
    if name not in lanes:
        raise InvalidParameter(f"policy={name!r} must be one of {', '.join(lanes)}", param="policy")


class Line:
    """How many sequences and prompt tokens wait in all lanes, and how fast the line drains."""

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self.max_sequences = max_sequences
        self.max_tokens = max_tokens
        self._waiting: dict[str, int] = {}  # sequence id → prompt tokens
        self._num_tokens = 0
        self._starts_s: deque[float] = deque(maxlen=DRAIN_WINDOW)

    def __len__(self) -> int:
        return len(self._waiting)

    def check_room(self, num_sequences: int, num_tokens: int, now_s: float) -> None:
        """Raise :class:`QueueFull`, with an estimate of when to come again, if these don't fit."""
        if len(self._waiting) + num_sequences > self.max_sequences:
            words = f"{len(self._waiting)} sequences wait; the line holds {self.max_sequences} (--max-queue)"
        elif self._num_tokens + num_tokens > self.max_tokens:
            words = f"{self._num_tokens} prompt tokens wait; the line holds {self.max_tokens} (--max-queue-tokens)"
        else:
            return
        raise QueueFull(words, retry_after_s=self._retry_after_s(num_sequences, now_s))

    def enter(self, sequence_id: str, num_tokens: int) -> None:
        self._waiting[sequence_id] = num_tokens
        self._num_tokens += num_tokens

    def start(self, sequence_id: str, now_s: float) -> None:
        """The sequence got a seat."""
        if self.leave(sequence_id):
            self._starts_s.append(now_s)

    def leave(self, sequence_id: str) -> bool:
        """The sequence waits no longer, for whatever cause.  False if it didn't wait."""
        num_tokens = self._waiting.pop(sequence_id, None)
        self._num_tokens -= num_tokens or 0
        return num_tokens is not None

    def _retry_after_s(self, num_sequences: int, now_s: float) -> float:
        """Time for ``num_sequences`` places to free at the measured rate, from 1 to 60 s."""
        if len(self._starts_s) < 2 or now_s <= self._starts_s[0]:
            return 1.0
        rate = len(self._starts_s) / (now_s - self._starts_s[0])
        return min(MAX_RETRY_AFTER_S, max(1.0, num_sequences / rate))
