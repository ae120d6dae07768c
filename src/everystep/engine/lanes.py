"""The three lanes of a server, from its settings, on one pool of blocks.

Owns which settings become which policy's arguments.  Ignorant of runners and processes.
"""

from __future__ import annotations

from everystep.config import Settings
from everystep.sched import BlockPool, ContinuousPolicy, PerTokenPolicy, StaticPolicy
from everystep.types import Policy

POLICIES = ("static", "per_token", "continuous")


def build_lanes(settings: Settings, pool: BlockPool, max_model_len: int) -> dict[str, Policy]:
    """Static, per-token and continuous, by name."""
    return {
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


def num_seats(settings: Settings) -> dict[str, int]:
    """Seats by lane."""
    return {
        "static": settings.static_batch_size,
        "per_token": settings.per_token_batch_size,
        "continuous": settings.max_num_seqs,
    }
