"""Whether and where a core's schedule is recorded, and what the record says of the engine.

Owns which settings a schedule and its tokens depend on.  No key and no address is among them: a recording is meant to
be handed on.  Ignorant of the format of the lines.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from everystep.architecture import Checkpoint
from everystep.config import Settings
from everystep.errors import UnsupportedOption
from everystep.messages import EngineInfo
from everystep.observe.schedule import SCHEMA, SILENT, Header, Recorder
from everystep.observe.schedule_writer import ScheduleWriter, open_schedule
from everystep.version import __version__

logger = logging.getLogger(__name__)

DECIDING_SETTINGS = (
    "model", "runner", "precision", "deterministic", "device", "threads", "max_model_len", "max_num_seqs",
    "max_num_batched_tokens", "prefix_cache", "static_batch_size", "static_max_batch_tokens", "static_max_wait",
    "per_token_batch_size", "per_token_max_batch_tokens", "ageing_s",
)  # fmt: skip


def check_record(settings: Settings) -> None:
    """Refuse a recording that can't be, before a model is opened.

    Raises :class:`UnsupportedOption` where vLLM schedules, :class:`ConfigError` for a file that can't be written.
    """
    if settings.record is None:
        return
    if settings.runner == "vllm":
        raise UnsupportedOption(
            "record: vLLM schedules for itself and doesn't say how; runner='vllm' can't be recorded", param="record"
        )
    os.close(open_schedule(settings.record))
    if settings.vllm_python is not None or settings.vllm_url is not None:
        logger.warning(
            "%s will hold our own lanes' requests; those of the lane vllm can't be recorded", settings.record
        )


def make_recorder(
    settings: Settings, info: EngineInfo, checkpoint: Checkpoint, vocab_size: int, first_step: int
) -> Recorder:
    """The recorder that the settings ask for; its header is written."""
    if settings.record is None:
        return SILENT
    header = Header(
        schema=SCHEMA,
        everystep=__version__,
        settings=settings.model_dump(mode="json", include=set(DECIDING_SETTINGS)),
        content_key=checkpoint.content_key,
        runner=info.runner,
        precision=info.precision,
        num_threads=info.num_threads,
        cpu=cpu_name(),
        block_size=info.block_size,
        num_blocks=info.num_blocks,
        max_model_len=info.max_model_len,
        vocab_size=vocab_size,
        seats=info.seats,
        first_step=first_step,
    )
    return ScheduleWriter(settings.record, header)


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name; empty where the system doesn't tell."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
