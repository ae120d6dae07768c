"""Contenders and passes whose every figure is written down by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from everystep.bench.passes import Pass

Answer = Callable[[Sequence[Sequence[int]], int], Pass]


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
        answer: Answer = honest,
        engine: str = "everystep",
    ) -> None:
        self.engine = engine
        self.policy = policy
        self.label = policy
        self.about = "made by hand"
        self._asked = asked
        self._answer = answer

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
