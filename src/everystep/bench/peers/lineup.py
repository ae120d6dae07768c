"""Who contends: the lanes of an everystep server, and the peers that are asked for and installed.

Owns the choice, the order and the one line for each that is left out.  Ignorant of loads and figures.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from everystep.bench.http_lane import HttpLane
from everystep.bench.passes import BenchFailed, Contender
from everystep.bench.peers.everystep_server import TIMEOUT, running
from everystep.bench.peers.genai import LABEL as GENAI_LABEL
from everystep.bench.peers.genai import running_genai
from everystep.bench.peers.installed import Installed, look
from everystep.bench.peers.process_tree import rest, settle
from everystep.bench.scrape import Scrape, prompt_token_ids, scrape, served_model
from everystep.config import Settings
from everystep.settings_sources import flag_name, variable_name

ENGINES = ("hf-generate", "vllm", "openvino-genai")
OWN_LANES = ("static", "per_token", "continuous")
# Not a server's business, or the benchmark's own choice.
NOT_PASSED_ON = {"host", "port", "log_level", "log_json", "api_key", "default_policy"}
OF_VLLM = {"vllm_python", "vllm_url", "vllm_arg"}  # only where vLLM is wanted
SECRETS = {"vllm_api_key"}  # a variable: everybody on the machine can read a command line
ABSENT_IN_PEERS = {"runner", "precision", "deterministic", "device"}  # chosen for our own lanes
NOTED_CORES = 0.02  # an idle contender that takes more is named in the report
FALLBACK_TOKEN_IDS = range(1000, 40_000)


@dataclass(frozen=True)
class Lineup:
    """What was asked for."""

    settings: Settings  # of our own server, and what the peers share with it
    policies: tuple[str, ...]
    engines: tuple[str, ...]
    logs: Path  # a folder that exists
    url: str | None = None  # a server that runs already, instead of one of our own
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

    async def rest(self) -> None:
        """Until nobody computes any more, or a deadline; how often that passed is for the report."""
        self.num_restless_turns += not await rest(self.pids)


@asynccontextmanager
async def lined_up(lineup: Lineup, say: Callable[[str], None]) -> AsyncIterator[Roster]:
    """Start everybody, one after another; all are ended when left, however that is."""
    roster = Roster()
    async with AsyncExitStack() as stack:
        start = _Start(lineup, roster, stack, say)
        for engine in lineup.engines:
            if engine == "hf-generate":
                await start.hf_generate()
        await start.own_lanes()
        if "vllm" in lineup.engines:
            await start.vllm()
        if "openvino-genai" in lineup.engines:
            await start.genai()
        if not roster.contenders:
            raise BenchFailed(f"nobody is left to measure: {'; '.join(roster.absent)}")
        for line in roster.absent:
            say(line)
        yield roster


class _Start:
    """Starts one contender after another into the roster."""

    def __init__(self, lineup: Lineup, roster: Roster, stack: AsyncExitStack, say: Callable[[str], None]) -> None:
        self._lineup = lineup
        self._roster = roster
        self._stack = stack
        self._say = say

    async def own_lanes(self) -> None:
        """The lanes asked for, as far as the server has them.  ``vllm`` is one where the server was given a vLLM."""
        lineup = self._lineup
        if not lineup.policies:
            return
        if lineup.url is not None:
            contenders = await self._lanes(lineup.url, "everystep", lineup.policies)
            await self._settle(contenders, None, None, Installed({}), "everystep")
            return
        policies = self._startable_policies()
        if policies:
            flags = server_flags(lineup.settings, with_vllm="vllm" in policies)
            await self._serve(sys.executable, flags, "everystep", policies, look(sys.executable, ("openvino",)))

    def _startable_policies(self) -> tuple[str, ...]:
        settings = self._lineup.settings
        if "vllm" in self._lineup.policies and settings.vllm_python is None and settings.vllm_url is None:
            self._leave_out("policy vllm", "--vllm-python PATH names no Python that has vLLM")
            return tuple(policy for policy in self._lineup.policies if policy != "vllm")
        return self._lineup.policies

    async def hf_generate(self) -> None:
        found = look(self._lineup.torch_python, ("torch", "transformers", "everystep"))
        if found.missing:
            self._leave_out("hf-generate", f"{found.missing} (--torch-python PATH names another Python)")
            return
        await self._serve(self._lineup.torch_python, self._peer_flags("hf-generate"), "hf-generate", ("static",), found)

    async def vllm(self) -> None:
        python = str(self._lineup.settings.vllm_python or sys.executable)
        found = look(python, ("vllm",))
        if found.missing:
            self._leave_out("vllm", f"{found.missing} (--vllm-python PATH names another Python)")
            return
        extra = [f"--vllm-arg={each}" for each in self._lineup.settings.vllm_arg]
        flags = [*self._peer_flags("vllm"), "--vllm-python", python, *extra]
        await self._serve(sys.executable, flags, "vllm", ("vllm",), found)

    async def genai(self) -> None:
        lineup, label = self._lineup, "openvino-genai"
        found = look(lineup.genai_python, ("openvino_genai",))
        if found.missing:
            self._leave_out(label, f"{found.missing} (--genai-python PATH names another Python)")
            return
        model = lineup.genai_model or Path(lineup.settings.model)
        if not is_readable_by_genai(model):
            self._leave_out(label, f"it reads GGUF or an OpenVINO IR folder (--genai-model PATH), which {model} isn't")
            return
        settings = lineup.settings
        limits = {"max-num-seqs": settings.max_num_seqs, "max-num-batched-tokens": settings.max_num_batched_tokens,
                  "cache-gib": max(round(settings.kv_cache_gib or 0), 1)}  # fmt: skip
        flags = [f"--{name}={value}" for name, value in limits.items()]
        self._say(f"starting {GENAI_LABEL} ...")
        entered = running_genai(lineup.genai_python, model, flags, lineup.logs / f"{label}.log")
        contender = await self._stack.enter_async_context(entered)
        start_s = await contender.hello()
        self._roster.contenders.append(contender)
        await self._settle([contender], contender.pid, start_s, found, label)

    async def _serve(
        self, python: str, flags: list[str], engine: str, policies: tuple[str, ...], found: Installed
    ) -> None:
        self._say(f"starting {engine} ...")
        key = self._lineup.settings.vllm_api_key
        secrets = {variable_name("vllm_api_key"): key} if key and "vllm" in policies else {}
        entered = running(python, flags, self._lineup.logs / f"{engine}.log", engine, secrets)
        server = await self._stack.enter_async_context(entered)
        contenders = await self._lanes(server.url, engine, policies)
        await self._settle(contenders, server.pid, server.start_s, found, engine)

    async def _lanes(self, url: str, engine: str, policies: tuple[str, ...]) -> list[Contender]:
        """Of ``policies``, those that the server has, as contenders."""
        try:
            http = await self._stack.enter_async_context(self._client(url))
            seen, model = await scrape(http), await served_model(http)
            self._roster.token_ids = await prompt_token_ids(http)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BenchFailed(f"{url} can't be asked: {error}") from error
        for policy in policies:
            if policy not in seen.policies:
                self._leave_out(f"policy {policy}", f"the server at {url} has no such lane")
        lanes: list[Contender] = [
            HttpLane(http, model, _engine_of(engine, policy), policy, self._label(engine, policy), _about(seen, policy))
            for policy in policies
            if policy in seen.policies
        ]
        self._roster.contenders += lanes
        return lanes

    def _client(self, url: str) -> httpx.AsyncClient:
        keys = self._lineup.settings.api_key if url == self._lineup.url else ()
        headers = {"Authorization": f"Bearer {keys[0]}"} if keys else {}
        return httpx.AsyncClient(base_url=url, timeout=TIMEOUT, headers=headers, trust_env=False)

    async def _settle(
        self, contenders: list[Contender], pid: int | None, start_s: float | None, found: Installed, engine: str
    ) -> None:
        """First tokens, then wait for what they set off: a server may compile on after its first answer.

        Without a ``pid`` (a server that ran already) nobody can see when it is quiet.
        """
        low = self._roster.token_ids.start
        for contender in contenders:
            await contender.measure([[low, low + 1]], 2)
        idle_cores = None if pid is None else await settle(pid)
        self._roster.pids += [] if pid is None else [pid]
        if idle_cores is not None and idle_cores >= NOTED_CORES:
            self._roster.notes.append(f"{engine} takes {idle_cores:.0%} of a core while idle, which slows the others")
        facts = {"start_s": start_s and round(start_s, 2), "idle_cores": idle_cores, "versions": found.versions}
        self._roster.started += [
            {"engine": one.engine, "policy": one.policy, "label": one.label, "about": one.about, **facts}
            for one in contenders
        ]

    def _peer_flags(self, runner: str) -> list[str]:
        shared = server_flags(self._lineup.settings, without=ABSENT_IN_PEERS)
        return [*shared, "--runner", runner, "--precision", self._lineup.peer_precision]

    def _label(self, engine: str, policy: str) -> str:
        settings, is_ours = self._lineup.settings, self._lineup.url is None
        seats = {"static": settings.static_batch_size, "per_token": settings.per_token_batch_size}
        name = f"{policy} {seats[policy]}" if policy in seats and is_ours else policy
        if engine == "hf-generate":
            return f"hf-generate ({policy} {settings.static_batch_size})"
        return "vLLM" if policy == "vllm" else name

    def _leave_out(self, who: str, why: str) -> None:
        self._roster.absent.append(f"{who} isn't measured: {why}")


def server_flags(settings: Settings, *, without: set[str] | None = None, with_vllm: bool = False) -> list[str]:
    """Flags of ``everystep serve`` for every setting that isn't its default."""
    kept_back = NOT_PASSED_ON | SECRETS | (without or set()) | (set() if with_vllm else OF_VLLM)
    flags = []
    for name in sorted(type(settings).model_fields.keys() - kept_back):
        value = getattr(settings, name)
        if value == type(settings).model_fields[name].default:
            continue
        if isinstance(value, bool):
            flags.append(flag_name(name if value else f"no_{name}"))
        else:
            values = value if isinstance(value, tuple) else (value,)
            flags += [f"{flag_name(name)}={each}" for each in values]
    return flags


def is_readable_by_genai(model: Path) -> bool:
    return model.suffix == ".gguf" or (model / "openvino_model.xml").is_file()


def _engine_of(server: str, policy: str) -> str:
    """A lane named vllm is vLLM's own, whoever hosts it."""
    return "vllm" if policy == "vllm" else server


def _about(seen: Scrape, policy: str) -> str:
    if policy == "vllm":
        precision = f", {seen.precision}" if seen.runner == "vllm" else ""  # else that is our own lanes'
        return f"vLLM behind everystep's HTTP server{precision}"
    return f"everystep {seen.version}, runner {seen.runner}, {seen.precision}"
