"""Starts contenders, or finds them where they run, into the roster.

Owns the one line for each that is left out, and the wait until a started one is quiet.  Ignorant of loads and figures.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
from pydantic import SecretStr

from everystep.bench.foreign import ForeignServer, found_out, listed_model
from everystep.bench.http_lane import HttpLane, NativeLane
from everystep.bench.open_http import LIMITS, TIMEOUT
from everystep.bench.passes import BenchFailed, Contender
from everystep.bench.peers.everystep_server import running
from everystep.bench.peers.genai import LABEL as GENAI_LABEL
from everystep.bench.peers.genai import is_readable_by_genai, running_genai
from everystep.bench.peers.installed import Installed, look
from everystep.bench.peers.process_tree import settle
from everystep.bench.peers.roster import Lineup, Roster
from everystep.bench.peers.server_flags import ABSENT_IN_PEERS, server_flags
from everystep.bench.peers.targets import Target, is_everystep, key_of, with_key
from everystep.bench.scrape import Scrape, prompt_token_ids, scrape, served_model
from everystep.settings_sources import variable_name

NOTED_CORES = 0.02  # an idle contender that takes more is named in the report


class Start:
    """Starts one contender after another into the roster."""

    def __init__(self, lineup: Lineup, roster: Roster, stack: AsyncExitStack, say: Callable[[str], None]) -> None:
        self._lineup = lineup
        self._roster = roster
        self._stack = stack
        self._say = say

    async def server_at(self, place: int) -> bool:
        """Whoever answers at the URL of that place; whether it is an everystep server, with lanes."""
        target, api = self._lineup.urls[place], self._lineup.api
        try:
            key = key_of(self._lineup.keys, place)
            http = await self._client(target.url, key)
            is_ours = api in ("everystep", "native") or (api is None and await is_everystep(http))
            if is_ours:
                lanes = await self._lanes(http, target.name or "everystep", self._lineup.policies, target)
                await self._settle(lanes, None, None, Installed({}), "everystep")
            else:
                await self._foreign(target, await self._client(target.openai_url, key))
            return is_ours
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BenchFailed(f"{target.url} can't be asked: {error}") from error

    async def _foreign(self, target: Target, http: httpx.AsyncClient) -> None:
        model = await listed_model(http, self._lineup.url_model)
        label = target.name or f"{model.owner} at {http.base_url.host}:{http.base_url.port}"
        api, token_ids = await found_out(http, model.name, label)
        if api.takes_token_ids:
            self._roster.narrow(token_ids)
        server = ForeignServer(http, api, target.name or model.owner, label)
        await self._settle([self._join(server)], None, None, Installed({}), server.engine)

    async def own_lanes(self) -> None:
        """The lanes asked for, of a server of our own.  ``vllm`` is one where the server was given a vLLM."""
        policies = self._startable_policies()
        if policies:
            flags = server_flags(self._lineup.settings, with_vllm="vllm" in policies)
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
        await self._settle([self._join(contender)], contender.pid, start_s, found, label)

    async def _serve(
        self, python: str, flags: list[str], engine: str, policies: tuple[str, ...], found: Installed
    ) -> None:
        self._say(f"starting {engine} ...")
        key = self._lineup.settings.vllm_api_key
        secrets = {variable_name("vllm_api_key"): key.get_secret_value()} if key and "vllm" in policies else {}
        entered = running(python, flags, self._lineup.logs / f"{engine}.log", engine, secrets)
        server = await self._stack.enter_async_context(entered)
        contenders = await self._lanes(await self._client(server.url, None), engine, policies)
        await self._settle(contenders, server.pid, server.start_s, found, engine)

    async def _lanes(
        self, http: httpx.AsyncClient, engine: str, policies: tuple[str, ...], target: Target | None = None
    ) -> list[Contender]:
        """Of ``policies``, those that the server has, as contenders.  ``target``: where it was found, not started."""
        seen, model = await scrape(http), await served_model(http)
        self._roster.narrow(await prompt_token_ids(http))
        is_native = target is not None and self._lineup.api == "native"
        lanes: list[Contender] = []
        for policy in policies:
            if policy not in seen.policies:
                self._leave_out(f"policy {policy}", f"the server at {str(http.base_url).rstrip('/')} has no such lane")
                continue
            label, about = self._label(engine, policy, target), _about(seen, policy)
            lane = NativeLane if is_native else HttpLane
            keeps_steps = self._lineup.keeps_steps and policy != "vllm"
            name = _engine_of(engine, policy)
            lanes.append(self._join(lane(http, model, name, policy, label, about, keeps_steps)))
        return lanes

    async def _client(self, url: str, key: SecretStr | None) -> httpx.AsyncClient:
        client = httpx.AsyncClient(base_url=url, timeout=TIMEOUT, limits=LIMITS, headers=with_key(key), trust_env=False)
        return await self._stack.enter_async_context(client)

    def _join(self, contender: Contender) -> Contender:
        """Into the roster, under a name that nobody else has."""
        taken = {(one.engine, one.policy) for one in self._roster.contenders}
        name, number = contender.engine, 1
        while (contender.engine, contender.policy) in taken:
            number += 1
            contender.engine = f"{name}-{number}"
        if number > 1:
            contender.label = f"{contender.label} ({number})"
        self._roster.contenders.append(contender)
        return contender

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

    def _label(self, engine: str, policy: str, target: Target | None) -> str:
        settings = self._lineup.settings
        if target is not None:  # its seats aren't known
            return f"{target.name} {policy}" if target.name else policy
        if engine == "hf-generate":
            return f"hf-generate ({policy} {settings.static_batch_size})"
        seats = {"static": settings.static_batch_size, "per_token": settings.per_token_batch_size}
        name = f"{policy} {seats[policy]}" if policy in seats else policy
        return "vLLM" if policy == "vllm" else name

    def _leave_out(self, who: str, why: str) -> None:
        self._roster.absent.append(f"{who} isn't measured: {why}")


def _engine_of(server: str, policy: str) -> str:
    """A lane named vllm is vLLM's own, whoever hosts it."""
    return "vllm" if policy == "vllm" else server


def _about(seen: Scrape, policy: str) -> str:
    if policy == "vllm":
        precision = f", {seen.precision}" if seen.runner == "vllm" else ""  # else that is our own lanes'
        return f"vLLM behind everystep's HTTP server{precision}"
    return f"everystep {seen.version}, runner {seen.runner}, {seen.precision}"
