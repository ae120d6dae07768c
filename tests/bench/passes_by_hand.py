"""Contenders and passes whose every figure is written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everystep.analysis.load import Arrival, Load
from everystep.analysis.outcome import Answer, Outcome
from everystep.bench.passes import Pass
from everystep.bench.served import Client, Served

Answered = Callable[[Sequence[Sequence[int]], int], Pass]


def honest(prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
    """A token every tenth of a second, all prompts together."""
    arrivals_s = tuple(0.1 * (token + 1) for token in range(max_tokens))
    return Pass(arrivals_s[-1], len(prompts) * max_tokens, (arrivals_s,) * len(prompts), 0.0)


class ContenderByHand:
    """Notes what it was asked into a list that all share."""

    def __init__(
        self,
        policy: str,
        asked: list[tuple[str, list[list[int]], int]],
        answer: Answered = honest,
        engine: str = "everystep",
    ) -> None:
        self.engine = engine
        self.policy = policy
        self.label = policy
        self.about = "made by hand"
        self.served: list[tuple[str, list[Arrival], list[list[int]]]] = []
        self.takes_s: Callable[[float], float] = lambda at_s: 0.5  # of an open load's request, by when it comes
        self._asked = asked
        self._answer = answer

    async def serve(self, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        self.served.append((self.policy, list(load), [list(prompt) for prompt in prompts]))
        answers = tuple(Answer(one, (one.at_s + self.takes_s(one.at_s),), one.output_tokens) for one in load)
        seat_steps = {"working": len(load), "held": 0, "empty": 3}
        wall_s = max(answer.token_times_s[-1] for answer in answers)
        return Served(Outcome(answers, wall_s, seat_steps), Client(0.0, (0.0,) * len(load)))

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        self._asked.append((self.policy, [list(prompt) for prompt in prompts], max_tokens))
        return self._answer(prompts, max_tokens)


def walls(*walls_s: float, policy: str, engine: str = "everystep") -> ContenderByHand:
    """One that takes these wall times, one a pass, the first of them uncounted."""
    left = list(walls_s)

    def answer(prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        wall_s = left.pop(0)
        return Pass(wall_s, len(prompts) * max_tokens, ((0.5 * wall_s, wall_s),) * len(prompts), 0.01)

    return ContenderByHand(policy, [], answer, engine)
