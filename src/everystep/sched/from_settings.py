"""The three lanes of a server, from its settings, on one pool of blocks.

Owns which settings become which policy's arguments.  Ignorant of runners and processes.
"""

from __future__ import annotations

from collections.abc import Iterable

from everystep.config import Settings
from everystep.sched.blocks import BlockPool
from everystep.sched.continuous import ContinuousPolicy
from everystep.sched.per_token import PerTokenPolicy
from everystep.sched.static import StaticPolicy
from everystep.types import Policy

POLICIES = ("static", "per_token", "continuous")


def build_lanes(
    settings: Settings, pool: BlockPool, max_model_len: int, names: Iterable[str] = POLICIES
) -> dict[str, Policy]:
    """The named ones of static, per-token and continuous, by name."""
    every: dict[str, Policy] = {
        "static": StaticPolicy(
            settings.static_batch_size,
            pool=pool,
            max_batch_tokens=settings.static_max_batch_tokens,
            max_wait_s=settings.static_max_wait,
            max_model_len=max_model_len,
            ageing_s=settings.ageing_s,
        ),
        "per_token": PerTokenPolicy(
            settings.per_token_batch_size,
            pool=pool,
            max_batch_tokens=settings.per_token_max_batch_tokens,
            max_model_len=max_model_len,
            ageing_s=settings.ageing_s,
        ),
        "continuous": ContinuousPolicy(
            settings.max_num_seqs,
            settings.max_num_batched_tokens,
            pool=pool,
            max_model_len=max_model_len,
            ageing_s=settings.ageing_s,
        ),
    }
    return {name: every[name] for name in names}


def num_seats(settings: Settings, names: Iterable[str] = POLICIES) -> dict[str, int]:
    """Seats by lane."""
    every = {
        "static": settings.static_batch_size,
        "per_token": settings.per_token_batch_size,
        "continuous": settings.max_num_seqs,
    }
    return {name: every[name] for name in names}
