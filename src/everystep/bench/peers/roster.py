"""Who was asked for, and who is there.

Owns the two records that the starting of contenders goes from and to.  Ignorant of how anybody is started.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from everystep.bench.passes import BenchFailed, Contender
from everystep.bench.peers.process_tree import rest
from everystep.bench.peers.targets import ApiName, Target
from everystep.config import Settings

FALLBACK_TOKEN_IDS = range(1000, 40_000)


@dataclass(frozen=True)
class Lineup:
    """What was asked for."""

    settings: Settings  # of our own server, and what the peers share with it
    policies: tuple[str, ...]
    engines: tuple[str, ...]
    logs: Path  # a folder that exists
    urls: tuple[Target, ...] = ()  # servers that run already
    keys: tuple[SecretStr, ...] = ()  # theirs, in the same order; the last is that of all that follow
    are_policies_given: bool = False  # or else the default
    api: ApiName | None = None  # of the urls; None: find out
    url_model: str | None = None  # the name that requests give them; None: the first that each lists
    keeps_steps: bool = False  # step logs go into the results
    torch_python: str = sys.executable
    genai_python: str = sys.executable
    genai_model: Path | None = None
    peer_precision: str = "auto"


@dataclass
class Roster:
    """Who is there."""

    contenders: list[Contender] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # a line each
    started: list[dict[str, object]] = field(default_factory=list)  # for the report
    notes: list[str] = field(default_factory=list)
    token_ids: range = FALLBACK_TOKEN_IDS
    pids: list[int] = field(default_factory=list)  # of what was started here
    num_restless_turns: int = 0
    _has_narrowed: bool = False

    def narrow(self, token_ids: range) -> None:
        """Prompts are drawn from what every contender's vocabulary holds."""
        ids = range(max(self.token_ids.start, token_ids.start), min(self.token_ids.stop, token_ids.stop))
        self.token_ids = ids if self._has_narrowed else token_ids
        self._has_narrowed = True
        if not self.token_ids:
            raise BenchFailed(f"no token id is in everybody's vocabulary: {token_ids} and another don't meet")

    async def rest(self) -> None:
        """Until nobody computes any more, or a deadline; how often that passed is for the report."""
        self.num_restless_turns += not await rest(self.pids)
