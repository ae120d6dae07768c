"""Who contends: the lanes of everystep servers, anybody's servers, and the peers that are asked for and installed.

Owns the choice, the order and that whoever was started is ended.  Ignorant of loads and figures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from everystep.bench.passes import BenchFailed
from everystep.bench.peers.roster import Lineup, Roster
from everystep.bench.peers.start import Start
from everystep.errors import ConfigError


@asynccontextmanager
async def lined_up(lineup: Lineup, say: Callable[[str], None]) -> AsyncIterator[Roster]:
    """Start everybody, one after another; all are ended when left, however that is."""
    roster = Roster()
    async with AsyncExitStack() as stack:
        await _everybody(lineup, Start(lineup, roster, stack, say))
        if not roster.contenders and not roster.absent:
            raise ConfigError("nobody to measure: give --policies, --engine or --url")
        if not roster.contenders:
            raise BenchFailed(f"nobody is left to measure: {'; '.join(roster.absent)}")
        for line in roster.absent:
            say(line)
        yield roster


async def _everybody(lineup: Lineup, start: Start) -> None:
    """Policies that were asked for are those of the everystep servers at URLs; without one, of a server of our own."""
    if "hf-generate" in lineup.engines:
        await start.hf_generate()
    num_everystep = 0
    for place in range(len(lineup.urls)):
        num_everystep += await start.server_at(place)
    is_own_asked_for = not lineup.urls or "everystep" in lineup.engines
    if is_own_asked_for or (lineup.are_policies_given and not num_everystep):
        await start.own_lanes()
    if "vllm" in lineup.engines:
        await start.vllm()
    if "openvino-genai" in lineup.engines:
        await start.genai()
