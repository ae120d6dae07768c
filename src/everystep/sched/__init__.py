"""Batching policies over one pool of KV-cache blocks.

Owns the decision which sequences share the next forward pass.  Pure: told the time, no I/O, no randomness, no model.

* :class:`StaticPolicy` fills a batch and runs it until its longest member ends.
* :class:`PerTokenPolicy` refills a batch of fixed width before every token.
* :class:`ContinuousPolicy` schedules token by token under a budget, with prefix caching, chunked prefill, preemption.
"""

from everystep.sched.admission import check_fits
from everystep.sched.blocks import BlockPool
from everystep.sched.continuous import ContinuousPolicy
from everystep.sched.per_token import PerTokenPolicy
from everystep.sched.static import StaticPolicy

__all__ = ["BlockPool", "ContinuousPolicy", "PerTokenPolicy", "StaticPolicy", "check_fits"]
