"""Policies and the block pool: who shares the next forward pass, and in which pages of the cache.

Owns the waiting lines, the seats, the blocks and every rule of ending.  Ignorant of models, clocks, processes and
clients: a policy is told the time, so that the same object drives the live engine, a simulator and a test.

Every policy is a :class:`everystep.types.Policy` and has besides

* ``pool``: its :class:`BlockPool`; ``num_waiting`` and ``num_seated``: sequences in its line and on its seats,
* ``ready_at_s()``: when it will start by itself though ``plan`` was empty, ``None`` if only a message or another
  lane can change things,
* ``last_started`` and ``last_preempted``: ids of the sequences that the last plan gave their first seat, or sent back
  to the line,
* ``num_preemptions`` and ``num_prefix_hit_tokens``: totals that only grow.
"""

from everystep.sched.blocks import BlockPool
from everystep.sched.continuous import ContinuousPolicy
from everystep.sched.door import check_fits
from everystep.sched.per_token import PerTokenPolicy
from everystep.sched.static import StaticPolicy

__all__ = ["BlockPool", "ContinuousPolicy", "PerTokenPolicy", "StaticPolicy", "check_fits"]
