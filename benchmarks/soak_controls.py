"""Requests whose texts are known: asked in quiet first, then again amid everything.  A text that differs is a fault.

Owns the right texts and the comparison: the same prompt and seed give the same text in every lane, whatever the batch.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field

from soak_asking import Asking, Reply
from soak_ledger import End
from soak_requests import Ask

DIFFER = "texts that differ"


@dataclass
class Controls:
    """``learn`` first, then ``compare_one`` as often as wanted."""

    asking: Asking
    asks: list[Ask]
    rng: random.Random
    right: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    num_compared: int = 0

    async def learn(self) -> None:
        """Ask each alone, twice; a lane has no text of its own."""
        for _ in range(2):
            for ask in self.asks:
                self._compare(ask, await self.asking.ask(ask))

    async def compare_one(self) -> None:
        ask = self.rng.choice(self.asks)
        self._compare(ask, await self.asking.ask(ask))

    def _compare(self, ask: Ask, reply: Reply) -> None:
        if reply.end is not End.ANSWERED:
            return
        right = self.right.setdefault(_question(ask), reply.texts)
        self.num_compared += 1
        if reply.texts != right:
            self.asking.ledger.violate(DIFFER, f"{ask.kind} {ask.path}: {reply.texts!r} instead of {right!r}")


def _question(ask: Ask) -> Hashable:
    assert ask.body is not None
    return (ask.path, *sorted((name, repr(value)) for name, value in ask.body.items() if name != "policy"))
