"""Requests whose texts are known: asked in quiet first, then again amid everything.  A text that differs is a fault.

Owns the right texts and the comparison: the same prompt and seed give the same text in every lane, whatever the batch.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field

from soak_answers import Reply
from soak_asking import Asking
from soak_ledger import End
from soak_requests import Ask

DIFFER = "texts that differ"
MOST_AGAIN = 40  # answers given under load that are asked for again in quiet


@dataclass
class Controls:
    """``learn`` first, then ``compare_one`` as often as wanted."""

    asking: Asking
    asks: list[Ask]
    rng: random.Random
    right: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    again: list[tuple[Ask, Reply]] = field(default_factory=list)
    num_repeatable: int = 0
    num_compared: int = 0

    async def learn(self) -> None:
        """Ask each alone, twice; a lane has no text of its own."""
        for _ in range(2):
            for ask in self.asks:
                self._compare(ask, await self.asking.ask(ask))

    async def ask(self, ask: Ask) -> None:
        """Any request.  Of those whose answers must come again, a fair sample is kept."""
        reply = await self.asking.ask(ask)
        if reply.end is not End.ANSWERED or not ask.is_repeatable:
            return
        self.num_repeatable += 1
        if len(self.again) < MOST_AGAIN:
            self.again.append((ask, reply))
        elif (place := self.rng.randrange(self.num_repeatable)) < MOST_AGAIN:
            self.again[place] = (ask, reply)

    async def ask_again(self) -> None:
        """In quiet, one by one: what came under load must come alone."""
        for ask, first in self.again:
            second = await self.asking.ask(ask.in_quiet())
            self.num_compared += second.end is End.ANSWERED
            if second.end is not End.ANSWERED or second.texts != first.texts:
                self.asking.ledger.violate(
                    DIFFER, f"{ask.path} {ask.body!r:.600}: {first.texts!r}, alone {second.texts!r}"
                )

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
