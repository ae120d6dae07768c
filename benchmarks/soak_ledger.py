"""The client's book: every request that a soak sends, and the one end that each must have.

Owns the entries, what each end says about the server's own counts, and the violations.  Ignorant of HTTP: who sends
says how it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MOST_EXAMPLES = 10  # of one violated line


class End(StrEnum):
    """How a request ended, as its client saw it."""

    ANSWERED = "answered"
    REFUSED = "refused (4xx)"  # the request was wrong, and the client was told so
    QUEUE_FULL = "queue full (429)"
    UNAVAILABLE = "unavailable (503)"  # not taken in: no worker, or draining
    QUEUE_TIMEOUT = "queue timeout (503)"
    REQUEST_TIMEOUT = "request timeout (504)"
    WORKER_DIED = "worker died (500)"
    LEFT = "left by the client"
    DROPPED = "dropped by the server, rightly"  # too slow, or no HTTP
    LOST = "LOST"  # cut without a word, malformed, or an unexpected status
    HUNG = "HUNG"  # no end within the client's deadline


TAKEN_IN = {End.ANSWERED, End.QUEUE_TIMEOUT, End.REQUEST_TIMEOUT, End.WORKER_DIED}
NEVER_TAKEN_IN = {End.REFUSED, End.QUEUE_FULL, End.UNAVAILABLE, End.DROPPED}


@dataclass
class Entry:
    """One request.  ``num_sequences`` is what it counts for in its lane, if it is taken in."""

    number: int
    kind: str
    policy: str | None  # None: it computes nothing
    num_sequences: int
    sent_s: float
    end: End | None = None
    ended_s: float = 0.0


@dataclass(frozen=True)
class Bounds:
    """How many sequences the server must have counted: exactly, but for those whose clients left before a word."""

    low: int
    high: int

    def hold(self, count: int) -> bool:
        return self.low <= count <= self.high


@dataclass
class Ledger:
    """One writer: the event loop that sends."""

    ends: dict[str, Counter[End]] = field(default_factory=dict)  # kind → how often it ended so
    open: dict[int, Entry] = field(default_factory=dict)
    violations: dict[str, list[str]] = field(default_factory=dict)  # line → examples
    num_violations: Counter[str] = field(default_factory=Counter)
    num_sent: int = 0
    max_open: int = 0
    num_streams: int = 0
    max_streams: int = 0
    died_at_s: list[float] = field(default_factory=list)  # when a client learned that the worker died
    _taken: Counter[str] = field(default_factory=Counter)
    _unsure: Counter[str] = field(default_factory=Counter)
    _rejected: Counter[str] = field(default_factory=Counter)

    def send(self, kind: str, policy: str | None, num_sequences: int, now_s: float) -> Entry:
        """A request goes out."""
        self.num_sent += 1
        entry = Entry(self.num_sent, kind, policy, num_sequences, now_s)
        self.open[entry.number] = entry
        self.max_open = max(self.max_open, self.num_computed)
        return entry

    def end(
        self,
        entry: Entry,
        how: End,
        now_s: float,
        words: str = "",
        *,
        is_taken: bool | None = None,
        is_sure: bool = True,
    ) -> None:
        """A request has its end.  ``is_taken``: whether the server took it in, where ``how`` alone doesn't tell.

        Not ``is_sure``: nobody can say how many sequences an odd request made, if it made any.
        """
        if entry.end is not None:
            self.violate("a request ended twice", f"{entry.kind} {entry.number}: {entry.end}, then {how}: {words}")
            return
        del self.open[entry.number]
        entry.end, entry.ended_s = how, now_s
        self.ends.setdefault(entry.kind, Counter())[how] += 1
        if how in (End.LOST, End.HUNG):
            self.violate(f"requests {how.value}", f"{entry.kind} {entry.number}, sent at {entry.sent_s:.1f} s: {words}")
        if how is End.WORKER_DIED:
            self.died_at_s.append(now_s)
        self._count(entry, how, is_taken, is_sure)

    def _count(self, entry: Entry, how: End, is_taken: bool | None, is_sure: bool) -> None:
        if entry.policy is None:
            return
        if not is_sure:
            self._unsure[entry.policy] += entry.num_sequences
        elif how is End.QUEUE_FULL:
            self._rejected[entry.policy] += entry.num_sequences
        elif is_taken or (is_taken is None and how in TAKEN_IN):
            self._taken[entry.policy] += entry.num_sequences
        elif is_taken is None and how not in NEVER_TAKEN_IN:
            self._unsure[entry.policy] += entry.num_sequences

    @property
    def num_computed(self) -> int:
        """Open requests that the server computes for, or that wait for it."""
        return sum(entry.policy is not None for entry in self.open.values())

    def stream_begins(self) -> None:
        self.num_streams += 1
        self.max_streams = max(self.max_streams, self.num_streams)

    def stream_ends(self) -> None:
        self.num_streams -= 1

    def violate(self, line: str, words: str) -> None:
        """Something that must not be; the first few of a line are kept in words."""
        self.num_violations[line] += 1
        examples = self.violations.setdefault(line, [])
        if len(examples) < MOST_EXAMPLES:
            examples.append(words)

    def violated(self) -> dict[str, dict[str, object]]:
        """Each violated line, how often, and its first examples."""
        return {
            line: {"times": times, "examples": self.violations[line]}
            for line, times in self.num_violations.items()
            if times
        }

    def accepted(self, policy: str) -> Bounds:
        """Of a lane, when no request is open."""
        return Bounds(self._taken[policy], self._taken[policy] + self._unsure[policy])

    def rejected(self, policy: str) -> Bounds:
        """Of a lane; one whose client left before a word may have been rejected too."""
        return Bounds(self._rejected[policy], self._rejected[policy] + self._unsure[policy])

    def total(self, how: End) -> int:
        return sum(ends[how] for ends in self.ends.values())

    def as_json(self) -> Mapping[str, object]:
        return {
            "num_sent": self.num_sent,
            "max_open": self.max_open,
            "max_streams": self.max_streams,
            "ends": {str(end): self.total(end) for end in End},
            "by_kind": {kind: {str(end): n for end, n in ends.items()} for kind, ends in sorted(self.ends.items())},
        }
