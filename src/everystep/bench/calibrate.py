"""A calibration from a running server: drive it, read its step log, fit.

Owns the order and the time limit.  Talks HTTP only, so that any everystep server can be calibrated from outside.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from everystep.analysis.calibration import Calibration, figures_of
from everystep.analysis.cost import Fit, fit
from everystep.analysis.step_work import TimedStep, timed_steps
from everystep.bench.calibrate_loads import Limits, Portion, portions
from everystep.bench.calibrate_lone import Lone, Overheads, ask_alone, clock_offset_s, engine_facts, overheads
from everystep.bench.calibrate_quiet import OtherWork
from everystep.bench.environment import environment
from everystep.bench.http_lane import HttpLane
from everystep.bench.open_http import LIMITS, TIMEOUT
from everystep.bench.open_loop import prompts_for
from everystep.bench.passes import BenchFailed
from everystep.bench.peers.everystep_server import running
from everystep.bench.peers.process_tree import settle
from everystep.bench.peers.server_flags import server_flags
from everystep.bench.peers.targets import with_key
from everystep.bench.scrape import prompt_token_ids, served_model
from everystep.config import Settings

DRIVE_LIMIT_S = 55.0  # no load begins after this
LONE_PROMPT, LONE_OUTPUT, NUM_LONE = 6, 10, 3
SPEED_PROMPT, SPEED_OUTPUT = 128, 3
WARM_UP_TOKENS = 12  # more than a runner makes before it compiles what it compiles behind its first answers
OWN_LANES = ("static", "per_token", "continuous")


@dataclass(frozen=True)
class Site:
    """A server that is ready and has nothing to do."""

    http: httpx.AsyncClient
    model: str
    facts: dict[str, Any]
    token_ids: range
    pid: int | None  # if it was started here

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(policy for policy in OWN_LANES if policy in self.facts["seats"])

    def lane(self, policy: str) -> HttpLane:
        """A contender that brings the step log of what it served."""
        return HttpLane(self.http, self.model, "everystep", policy, policy, "", keeps_steps=True)


@dataclass
class Driven:
    """What was measured so far."""

    lone: list[Lone] = field(default_factory=list)
    steps: list[TimedStep] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    drive_s: float = 0.0


@asynccontextmanager
async def started(settings: Settings, logs: Path, say: Callable[[str], None]) -> AsyncIterator[Site]:
    """A server of our own, warm and quiet."""
    say("starting everystep ...")
    entered = running(sys.executable, server_flags(settings), logs / "everystep.log", "everystep")
    async with entered as server, at(server.url, None, server.pid) as site:
        yield site


@asynccontextmanager
async def at(url: str, key: SecretStr | None, pid: int | None = None) -> AsyncIterator[Site]:
    """The server that answers at ``url``, warm; quiet, if its ``pid`` is known.  Raises :class:`BenchFailed`."""
    async with httpx.AsyncClient(
        base_url=url, timeout=TIMEOUT, limits=LIMITS, headers=with_key(key), trust_env=False
    ) as http:
        try:
            facts, model, token_ids = await engine_facts(http), await served_model(http), await prompt_token_ids(http)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BenchFailed(f"{url} can't be asked: {error}") from error
        site = Site(http, model, facts, token_ids, pid)
        if not site.policies:
            raise BenchFailed(f"{url} has no lane of ours: {', '.join(facts['seats']) or 'none at all'}")
        for policy in site.policies:
            await site.lane(policy).measure([[token_ids.start] * 2], WARM_UP_TOKENS)
        if pid is not None:
            await settle(pid)
        yield site


async def calibrate(site: Site, say: Callable[[str], None], seed: int = 0) -> Calibration:
    """Drive the server for less than a minute and fit its cost.  Raises :class:`CalibrationFailed`."""
    machine = environment()
    others = OtherWork(site.pid)
    driven = await _drive(site, random.Random(seed), say)
    found = fit(driven.steps)
    extra = {"other_cores": others.cores(), "drive_s": round(driven.drive_s, 1), "left_out": driven.left_out}
    return _calibration(site.facts, found, overheads(driven.lone), machine | extra)


async def _drive(site: Site, rng: random.Random, say: Callable[[str], None]) -> Driven:
    driven, start_s = Driven(), time.monotonic()
    limits = await _alone(site, rng, driven)
    for portion in portions(site.policies, limits, rng):
        if time.monotonic() - start_s > DRIVE_LIMIT_S:
            driven.left_out.append(portion.name)
            continue
        say(f"{portion.policy}: {portion.name}")
        driven.steps += await _serve(site, portion, rng)
    driven.drive_s = time.monotonic() - start_s
    return driven


async def _alone(site: Site, rng: random.Random, driven: Driven) -> Limits:
    """Lone requests on every lane; what bounds the loads to come."""
    offset_s = await clock_offset_s(site.http)
    room = int(site.facts["max_model_len"])

    async def ask(policy: str, prompt_tokens: int, num_tokens: int) -> Lone:
        num_tokens = min(num_tokens, room - 1)
        prompt = rng.choices(site.token_ids, k=min(prompt_tokens, room - num_tokens))
        return await ask_alone(site.http, site.model, policy, prompt, num_tokens, offset_s)

    for policy in site.policies:
        driven.lone += [await ask(policy, LONE_PROMPT, LONE_OUTPUT) for _ in range(NUM_LONE)]
    read = await ask(site.policies[-1], SPEED_PROMPT, SPEED_OUTPUT)
    for one in (*driven.lone, read):
        driven.steps += timed_steps(one.steps)
    return Limits(int(site.facts["settings"]["max_num_seqs"]), room, read.tokens_per_s)


async def _serve(site: Site, portion: Portion, rng: random.Random) -> list[TimedStep]:
    lane, prompts = site.lane(portion.policy), prompts_for(portion.load, site.token_ids, rng)
    if portion.is_one_request:
        return timed_steps((await lane.measure(prompts, portion.load[0].output_tokens)).steps or ())
    served = await lane.serve(portion.load, prompts)
    errors = [answer.error for answer in served.outcome.answers if answer.error is not None]
    if errors:
        raise BenchFailed(f"{portion.name}: {len(errors)} of {len(portion.load)} requests failed: {errors[0]}")
    return timed_steps(served.steps or ())


def _calibration(facts: dict[str, Any], found: Fit, outside: Overheads, machine: dict[str, Any]) -> Calibration:
    names = ("model", "runner", "precision", "num_threads", "block_size", "num_blocks", "kv_block_bytes")
    return Calibration(
        **{name: facts[name] for name in names},
        max_model_len=facts["max_model_len"],
        batch=facts["settings"],
        coefficients=dict(found.cost.seconds),
        fit=figures_of(found),
        submit_s=outside.submit_s,
        deliver_s=outside.deliver_s,
        environment=machine,
    )
