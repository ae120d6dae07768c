"""From a recorded file to a verdict: the engine that the recording's header describes, driven through it.

Owns how a header becomes a core, with its model or without one, and that every core of the file is replayed.  A failing
schedule is so a test: ``assert replay_schedule(path).is_equal``.  Ignorant of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from everystep.analysis.replay import Core, Playback
from everystep.analysis.replay_report import Report
from everystep.analysis.replay_tokens import RecordedTokens
from everystep.checkpoint import open_checkpoint
from everystep.config import RunnerName, Settings
from everystep.engine.bootstrap import build_core
from everystep.engine.core import EngineCore
from everystep.engine.recording import cpu_name
from everystep.engine.runners import cache_dir
from everystep.errors import UnsupportedOption
from everystep.messages import EngineInfo
from everystep.observe.schedule import Header
from everystep.observe.schedule_reader import Turn, read_schedule
from everystep.sched import BlockPool
from everystep.sched.from_settings import build_lanes
from everystep.settings_sources import load_settings
from everystep.types import Policy
from everystep.version import __version__

MakeLanes = Callable[[Settings, BlockPool, Header], Mapping[str, Policy]]


def replay_schedule(path: Path, make_lanes: MakeLanes | None = None) -> Report:
    """Replay who sat where and when, on the recorded tokens: no model is opened.  Milliseconds for hundreds of steps.

    ``make_lanes`` puts policies of the caller's in place of those that the recorded settings make.  Raises
    :class:`ConfigError` for a file that is no recording.
    """

    def replay_one(header: Header, turns: Iterator[Turn]) -> Report:
        playback = Playback()
        return playback.play(_schedule_core(header, playback, make_lanes or _recorded_lanes), turns)

    return _replay_all(path, replay_one)


def replay_engine(path: Path, changes: Mapping[str, object] | None = None) -> Report:
    """Replay with the model and the runner: tokens are drawn anew, and must be the recorded ones.

    ``changes`` override the recorded settings (``model``, where it lies elsewhere here; ``runner``; ``cache_dir``).
    Raises :class:`UnsupportedOption` where the engine so made can't hold what the recorded held.
    """

    def replay_one(header: Header, turns: Iterator[Turn]) -> Report:
        playback = Playback()
        core, unlike = _engine_core(header, playback, changes or {})
        try:
            report = playback.play(core, turns)
        finally:
            core.close()
        return replace(report, notes=(*unlike, *report.notes))

    return _replay_all(path, replay_one)


def _replay_all(path: Path, replay_one: Callable[[Header, Iterator[Turn]], Report]) -> Report:
    """Each core of the file on a core of its own, up to the first difference."""
    items = read_schedule(path)
    header = next(items, None)
    total: Report | None = None
    while isinstance(header, Header):
        following: list[Header] = []
        report = replay_one(header, _until_header(items, following))
        total = report if total is None else total.followed_by(report)
        header = following[0] if following and report.is_equal else None
    assert total is not None, "a recording begins with a header"
    return total


def _until_header(items: Iterator[Header | Turn], following: list[Header]) -> Iterator[Turn]:
    """The turns of one core; the header behind them, if there is one, goes to ``following``."""
    for item in items:
        if isinstance(item, Header):
            following.append(item)
            return
        yield item


# --- without a model -----------------------------------------------------------------------------
def _recorded_lanes(settings: Settings, pool: BlockPool, header: Header) -> Mapping[str, Policy]:
    return build_lanes(settings, pool, header.max_model_len, header.seats)


def _schedule_core(header: Header, playback: Playback, make_lanes: MakeLanes) -> Core:
    settings = recorded_settings(header, {})
    pool = BlockPool(header.num_blocks, header.block_size, prefix_cache=settings.prefix_cache)
    return EngineCore(
        runner=RecordedTokens(header, playback),
        lanes=make_lanes(settings, pool, header),
        pool=pool,
        now_s=playback.now_s,
        drain=playback.drain,
        first_step=header.first_step,
    )


# --- with it -------------------------------------------------------------------------------------
def recorded_settings(header: Header, changes: Mapping[str, object]) -> Settings:
    """The settings that decided, with ``changes``.  Raises :class:`ConfigError` for one that isn't known here."""
    recorded = {name: value for name, value in header.settings.items() if value is not None}
    return load_settings({**recorded, "max_model_len": header.max_model_len, **changes})


def _engine_core(
    header: Header, playback: Playback, changes: Mapping[str, object]
) -> tuple[EngineCore, tuple[str, ...]]:
    """The core, and in which respects it isn't the recorded one."""
    if header.runner not in get_args(RunnerName) and "runner" not in changes:
        raise UnsupportedOption(
            f"recorded with a runner of its user's, {header.runner}: name another, or replay the schedule only",
            param="runner",
        )
    settings = recorded_settings(header, {"runner": header.runner, "threads": header.num_threads, **changes})
    content_key = open_checkpoint(settings.model, cache_dir(settings)).content_key
    core, info = build_core(
        settings,
        now_s=playback.now_s,
        drain=playback.drain,
        first_step=header.first_step,
        num_blocks=header.num_blocks,
    )
    playback.play_path = getattr(core.runner, "force_path", playback.play_path)
    try:
        _require_same_shape(header, info)
    except UnsupportedOption:
        core.close()
        raise
    return core, _unlike(header, info, content_key)


def _require_same_shape(header: Header, info: EngineInfo) -> None:
    """Blocks, context and seats decide who runs: with others it isn't the same schedule."""
    for name in ("block_size", "max_model_len", "seats"):
        was, is_now = getattr(header, name), getattr(info, name)
        if was != is_now:
            raise UnsupportedOption(f"{name}: recorded with {was}, but runner {info.runner} has {is_now} here")


def _unlike(header: Header, info: EngineInfo, content_key: str) -> tuple[str, ...]:
    """Differences from the recorded engine that may change a token."""
    pairs = {
        "everystep": (header.everystep, __version__),
        "runner": (header.runner, info.runner),
        "precision": (header.precision, info.precision),
        "threads": (header.num_threads, info.num_threads),
        "processor": (header.cpu, cpu_name()),
        "content of the model": (header.content_key[:12], content_key[:12]),
    }
    return tuple([f"{name}: recorded {was}, here {now}" for name, (was, now) in pairs.items() if was != now])
