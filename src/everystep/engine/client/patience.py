"""How long a worker is waited for, and how often one that ends is replaced.

Owns the bounds, in one place, so that tests can have shorter ones.  Ignorant of who waits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The defaults are a server's."""

    first_back_off_s: float = 0.1
    max_back_off_s: float = 10.0
    max_failures: int = 6  # ends in a row, without service between them
    steady_s: float = 60.0  # one that was ready for so long has served, asked or not
    start_s: float = 900.0  # from its start to its first word: weights may be built, kernels compiled
    leave_s: float = 5.0  # once it is told to leave
    reap_s: float = 1.0  # from the end of its socket to its own; requests are failed behind it
    watch_interval_s: float = 0.5

    def back_off_s(self, num_failures: int) -> float:
        """The wait before the next start, doubled with each failure in a row."""
        return min(self.max_back_off_s, self.first_back_off_s * 2.0 ** (num_failures - 1))


USUAL = Patience()
