"""A policy of one's own in one file, compared with the three that ship.  Needs no model: the runner is a fake.

python examples/own_policy.py
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from everystep import SamplingParams
from everystep.engine.core import EngineCore
from everystep.messages import Submit
from everystep.runner.fake import FakeRunner
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import Policy, Sequence

OUTPUT_LENGTHS = [5, 60, 5, 60, 5, 60, 5, 60]  # tokens that eight requests ask for, in the order of their arrival


class ShortestFirstPolicy(StaticPolicy):
    """Static rounds of requests that want equally much: who asks for few tokens goes first.

    A lower priority number goes first in the line, so the whole policy is one line.
    """

    name = "shortest_first"

    def add(self, sequence: Sequence) -> None:
        sequence.priority = sequence.params.max_tokens
        super().add(sequence)


POLICIES: dict[str, Callable[[BlockPool], Policy]] = {
    "static": lambda pool: StaticPolicy(4, pool=pool),
    "shortest_first": lambda pool: ShortestFirstPolicy(4, pool=pool),
    "per_token": lambda pool: PerTokenPolicy(4, pool=pool),
    "continuous": lambda pool: ContinuousPolicy(4, 512, pool=pool),
}


def run(make_policy: Callable[[BlockPool], Policy]) -> dict[str, int]:
    """All requests through one policy: steps taken, and seat-steps by what the seat did."""
    pool = BlockPool(64)
    runner = FakeRunner()
    runner.allocate(pool.num_blocks)
    policy = make_policy(pool)
    clock = count()  # time is told, so any clock will do
    core = EngineCore(runner=runner, lanes={policy.name: policy}, pool=pool, now_s=lambda: float(next(clock)))
    for index, num_tokens in enumerate(OUTPUT_LENGTHS):
        core.submit(request(f"r{index}", policy.name, num_tokens))
    totals = {"steps": 0, "working": 0, "held": 0, "empty": 0}
    while (output := core.step()) is not None:
        totals["steps"] += 1
        totals["working"] += output.summary.num_working
        totals["held"] += output.summary.num_held
        totals["empty"] += output.summary.num_empty
    pool.check()
    return totals


def request(name: str, policy: str, num_tokens: int) -> Submit:
    return Submit(
        sequence_id=name,
        request_id=name,
        policy=policy,
        prompt_ids=(1, 2, 3, 4, 5, 6),
        params=SamplingParams(max_tokens=num_tokens, ignore_eos=True),
        seed=0,
        eos_token_ids=(),
        priority=0,
        arrival_s=0.0,
    )


def main() -> None:
    print(f"{'policy':<16}{'steps':>8}{'working':>9}{'held':>8}{'empty':>8}   (seat-steps)")
    for name, make_policy in POLICIES.items():
        totals = run(make_policy)
        print(f"{name:<16}{totals['steps']:>8}{totals['working']:>9}{totals['held']:>8}{totals['empty']:>8}")


if __name__ == "__main__":
    main()
