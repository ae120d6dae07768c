"""Signs of life: what a worker leaves for its client to see, even while it computes.

Owns the numbers and how long a pass may take.  Ignorant of who writes them, who reads and who acts.
"""

from __future__ import annotations

from collections.abc import MutableSequence

SLOTS = 2  # [seconds since the server's start of the last beat, tokens of the pass in progress]
SLOW_TOKENS_PER_S = 20.0  # read by a large model on a small machine; a round of long prompts is one pass


class Heartbeat:
    """A view of two numbers, shared memory where the worker is a process.

    A beat says that the worker has just got on, or has rightly nothing to do: one that turns round without a step,
    though there is work, doesn't beat.
    """

    def __init__(self, slots: MutableSequence[float]) -> None:
        self._slots = slots

    def beat(self, now_s: float) -> None:
        self._slots[0], self._slots[1] = now_s, 0.0

    def begin_pass(self, now_s: float, num_tokens: int) -> None:
        """A beat; the next may come later the more tokens are computed."""
        self._slots[0], self._slots[1] = now_s, float(num_tokens)

    @property
    def beat_s(self) -> float:
        return self._slots[0]

    @property
    def pass_s(self) -> float:
        """Seconds that the pass in progress may take on a slow machine; 0 where none is in progress."""
        return self._slots[1] / SLOW_TOKENS_PER_S
