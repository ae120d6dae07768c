"""Predictions for a benchmark: the same load, simulated on a calibration.

Owns whether a calibration is of the server that is measured.  One of another model, runner, precision or number of
threads is refused, not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from everystep.analysis.calibration import Calibration, load_calibration
from everystep.analysis.load import Load
from everystep.analysis.round_law import Round, round_law_s
from everystep.analysis.simulator import Machine, simulate
from everystep.bench.passes import BenchFailed
from everystep.bench.peers.targets import Target, key_of, with_key
from everystep.config import Settings
from everystep.errors import ConfigError
from everystep.sched.from_settings import POLICIES

OWN_SERVER = "everystep"
ASK_DEADLINE_S = 10.0
IDENTITY = ("model", "runner", "precision", "num_threads")


@dataclass(frozen=True)
class Simulated:
    """A server as the simulator needs it."""

    settings: Settings
    machine: Machine  # a request a prompt, as open loads are sent
    one_request: Machine  # all prompts in one, as closed loads are


class Predictor:
    """Fills ``predicted_wall_s`` of our own lanes; others have no step log that could be fitted."""

    def __init__(self, calibration: Calibration, servers: Mapping[str, Simulated]) -> None:
        """``servers`` by the engine's name in the results."""
        self._cost = calibration.cost
        self._servers = dict(servers)

    def __call__(self, engine: str, policy: str, load: Load) -> float | None:
        """Wall seconds of the whole load."""
        server = self._servers.get(engine)
        if server is None or policy not in POLICIES:
            return None
        is_open = load[-1].at_s > 0  # then each prompt is a request that a full line turns away
        machine = server.machine if is_open else server.one_request
        return simulate(load, server.settings, policy, machine, is_line_bounded=is_open).wall_s

    def round_law_s(self, engine: str, policy: str, load: Load) -> float | None:
        """ceil(N ÷ B) × T(round) for equal prompts at once on a static lane, and the way to the client and back."""
        server = self._servers.get(engine)
        if server is None or policy != "static" or len(set(load)) != 1:
            return None
        one = Round(server.settings.static_batch_size, load[0].prompt_tokens, load[0].output_tokens)
        return round_law_s(len(load), self._cost, one) + server.machine.submit_s + server.machine.deliver_s


def predictor(
    path: Path, settings: Settings, targets: tuple[Target, ...], keys: tuple[SecretStr, ...] = ()
) -> Predictor:
    """From a calibration file, for a server that will be started with ``settings`` or those that run at ``targets``.

    Raises :class:`ConfigError` where the file is of another engine.
    """
    calibration = load_calibration(path)
    servers = {}
    for place, target in enumerate(targets):
        if (facts := _facts_at(target.url, key_of(keys, place))) is not None:
            servers[target.name or OWN_SERVER] = _running(calibration, facts, path, target.url)
    if not servers:
        servers[OWN_SERVER] = _to_be_started(calibration, settings, path)
    return Predictor(calibration, servers)


def _to_be_started(calibration: Calibration, settings: Settings, path: Path) -> Simulated:
    """What is left to the server (``auto``, or no number of threads) can't differ before it has started."""
    asked = {
        "model": settings.served_name,
        "runner": None if settings.runner == "auto" else settings.runner,
        "precision": None if settings.precision == "auto" else settings.precision,
        "num_threads": settings.threads,
    }
    _check(calibration, {name: value for name, value in asked.items() if value is not None}, path, "this benchmark")
    return Simulated(settings, *(calibration.machine(settings, is_one_request=is_one) for is_one in (False, True)))


def _running(calibration: Calibration, facts: Mapping[str, Any], path: Path, url: str) -> Simulated:
    _check(calibration, {name: facts[name] for name in IDENTITY}, path, url)
    sizes = {name: facts[name] for name in ("num_blocks", "block_size", "max_model_len")}
    machines = (calibration.machine(is_one_request=is_one, **sizes) for is_one in (False, True))
    return Simulated(Settings(**facts["settings"]), *machines)


def _check(calibration: Calibration, asked: Mapping[str, object], path: Path, whose: str) -> None:
    for name, value in asked.items():
        if (calibrated := getattr(calibration, name)) != value:
            raise ConfigError(
                f"{path} was calibrated with {name}={calibrated}, {whose} has {value}: calibrate anew",
                param="calibration",
            )


def _facts_at(url: str, key: SecretStr | None) -> dict[str, Any] | None:
    """What a server says of its engine; ``None`` where it isn't one of ours."""
    try:
        reply = httpx.get(f"{url.rstrip('/')}/engine", headers=with_key(key), timeout=ASK_DEADLINE_S, trust_env=False)
        return dict(reply.json()) if reply.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise BenchFailed(f"{url} can't be asked: {error}") from error
    except ValueError:  # no JSON: somebody else's page of that name
        return None
