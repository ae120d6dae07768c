"""``everystep bench --calibrate`` from start to file.

Owns where the file goes and what is refused beside it.  Ignorant of flags' syntax and of how a calibration is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import SecretStr

from everystep.analysis.calibration import Calibration, save_calibration
from everystep.bench.calibrate import Site, at, calibrate, started
from everystep.bench.calibrate_quiet import words
from everystep.bench.folders import log_folder
from everystep.bench.peers.targets import Target, key_of
from everystep.bench.signals import run_signalled
from everystep.config import Settings
from everystep.errors import ConfigError

FILE = "calibration.json"
TOGETHER = {"calibrate", "urls", "out", "as_json", "seed"}  # beside a server's own settings


def check_alone(given: Collection[str]) -> None:
    """A calibration has loads of its own.  Raises :class:`ConfigError` for a flag that would do nothing."""
    extra = sorted(set(given) - TOGETHER - set(Settings.model_fields))
    if extra:
        flag = "-n" if extra[0] == "sizes" else f"--{extra[0].replace('_', '-')}"
        raise ConfigError(f"--calibrate drives loads of its own: {flag} doesn't go with it")


def run_calibration(
    settings: Settings,
    targets: tuple[Target, ...],
    keys: tuple[SecretStr, ...],
    out: Path,
    seed: int,
    say: Callable[[str], None],
) -> tuple[Calibration, list[str]]:
    """Calibrate a server of our own, or the one at the URL, and write ``calibration.json`` into ``out``.

    Returns it with the lines that a person should read.  Raises :class:`CalibrationFailed`, :class:`BenchFailed`.
    """
    if len(targets) > 1:
        raise ConfigError(f"--calibrate takes one --url, got {len(targets)}")
    logs = log_folder(out)
    site = at(targets[0].url, key_of(keys, 0)) if targets else started(settings, logs, say)
    calibration = run_signalled(_calibrate(site, say, seed))
    path = out / FILE
    save_calibration(calibration, path)
    left_out = calibration.environment["left_out"]
    notes = words(calibration.environment["other_cores"])
    notes += [f"no time was left for: {', '.join(left_out)}"] if left_out else []
    return calibration, [*notes, f"written: {path}"]


async def _calibrate(entered: AbstractAsyncContextManager[Site], say: Callable[[str], None], seed: int) -> Calibration:
    async with entered as site:
        return await calibrate(site, say, seed)
