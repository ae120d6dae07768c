"""A replica under a plan, and the same replica with one thing changed: the "what if" rows.

Owns which limits a policy has, how each is relaxed or tightened, and which of them binds.  Ignorant of how a rate is
found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from everystep.analysis.simulator import Machine
from everystep.config import Settings

SEATS, BUDGET, BLOCKS, COMPUTE = "seats", "token budget", "KV blocks", "compute"
SEATS_OF = {
    "static": "static_batch_size",
    "per_token": "per_token_batch_size",
    "continuous": "max_num_seqs",
}
BUDGET_OF = {
    "static": "static_max_batch_tokens",
    "per_token": "per_token_max_batch_tokens",
    "continuous": "max_num_batched_tokens",
}
BINDING_GAIN = 0.05  # a limit whose doubling gives less than this binds nobody: it is within the search and the luck


@dataclass(frozen=True, slots=True)
class Case:
    """A replica: what computes, its limits, and the lane that serves."""

    settings: Settings
    policy: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class Change:
    """One thing changed.  ``limit`` is which, ``factor`` by how much; a change of another kind has neither."""

    label: str
    case: Case
    limit: str | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What a change does to the highest rate.  ``rate`` 0 means less than a tenth of the plan's own, if anything."""

    label: str
    rate: float  # requests a second and replica
    ratio: float  # to the plan's own rate
    replicas: int | None  # None where the rate is 0
    limit: str | None
    factor: float | None


def halved_and_doubled(case: Case) -> list[Change]:
    """Seats, token budget (where the policy has one) and KV blocks, half and twice each."""
    changes = [_blocks(case, factor) for factor in (0.5, 2.0)]
    for limit, fields in ((BUDGET, BUDGET_OF), (SEATS, SEATS_OF)):
        now = getattr(case.settings, fields[case.policy])
        if now is not None:
            pairs = [_setting(case, limit, fields[case.policy], now, factor) for factor in (0.5, 2.0)]
            changes = [*filter(None, pairs), *changes]
    return changes


def _blocks(case: Case, factor: float) -> Change:
    now, then = case.machine.num_blocks, max(1, int(case.machine.num_blocks * factor))
    machine = replace(case.machine, num_blocks=then)
    return Change(f"KV blocks {now} → {then}", replace(case, machine=machine), BLOCKS, factor)


def _setting(case: Case, limit: str, field: str, now: int, factor: float) -> Change | None:
    """``None`` where nothing is left to halve.  Seats and budget bound each other: the other one gives way."""
    then = max(1, int(now * factor))
    if then == now:
        return None
    update, words = {field: then}, f"{limit} {now} → {then}"
    if case.policy == "continuous":
        seats = update.get("max_num_seqs", case.settings.max_num_seqs)
        budget = update.get("max_num_batched_tokens", case.settings.max_num_batched_tokens)
        if budget < seats and limit == SEATS:
            update["max_num_batched_tokens"], words = seats, f"{words}, budget {budget} → {seats}"
        elif budget < seats:
            update["max_num_seqs"], words = budget, f"{words}, seats {seats} → {budget}"
    return Change(words, replace(case, settings=case.settings.model_copy(update=update)), limit, factor)


def other_policies(case: Case) -> list[Change]:
    """The same machine and settings, served by each other lane."""
    return [Change(name, replace(case, policy=name)) for name in SEATS_OF if name != case.policy]


def what_binds(rows: Iterable[WhatIf]) -> str:
    """The limit whose doubling raises the rate most; compute where no doubling raises it by :data:`BINDING_GAIN`."""
    gains: Mapping[str, float] = {row.limit: row.ratio for row in rows if row.limit is not None and row.factor == 2.0}
    if not gains or max(gains.values()) < 1 + BINDING_GAIN:
        return COMPUTE
    return max(gains, key=lambda limit: gains[limit])
