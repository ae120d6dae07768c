"""What the fuzzed schedulers look like: tiny lanes on a tiny pool, as settings that a recording's header can hold.

Owns the scenes, the fake model's constants and what one text alone would get.  Ignorant of what happens in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from everystep.config import Settings
from everystep.engine.recording import DECIDING_SETTINGS
from everystep.observe.schedule import SCHEMA, Header
from everystep.runner.fake import next_token
from everystep.sched import BlockPool, PerTokenPolicy
from everystep.sched.from_settings import build_lanes, num_seats
from everystep.types import Policy
from everystep.version import __version__

BLOCK_SIZE = 4
MAX_MODEL_LEN = 44
MAX_TOKENS = 14
MAX_PRIORITY = 4
EOS, EOS_RATE, VOCAB = 0, 0.1, 50
NAIVE = "naive"  # as the header's runner: the per-token lane reads each text anew

MakeLanes = Callable[[Settings, BlockPool, Header], Mapping[str, Policy]]


@dataclass(frozen=True)
class Scene:
    """Lanes and their settings.  ``num_blocks`` is the pool's."""

    lanes: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    is_naive: bool = False
    num_blocks: int = 4

    @classmethod
    def of(cls, header: Header) -> Scene:
        given = {name: value for name, value in header.settings.items() if value is not None}
        return cls(tuple(header.seats), Settings(**given), header.runner == NAIVE, header.num_blocks)

    @property
    def cache_tokens(self) -> int:
        return self.num_blocks * BLOCK_SIZE

    def header(self) -> Header:
        return Header(
            schema=SCHEMA,
            everystep=__version__,
            settings=self.settings.model_dump(mode="json", include=set(DECIDING_SETTINGS)),
            content_key="",
            runner=NAIVE if self.is_naive else "fake",
            precision="none",
            num_threads=1,
            cpu="",
            block_size=BLOCK_SIZE,
            num_blocks=self.num_blocks,
            max_model_len=MAX_MODEL_LEN,
            vocab_size=VOCAB,
            seats=num_seats(self.settings, self.lanes),
            first_step=0,
        )


def right_lanes(settings: Settings, pool: BlockPool, header: Header) -> Mapping[str, Policy]:
    """The policies as they are."""
    lanes = build_lanes(settings, pool, header.max_model_len, header.seats)
    if header.runner == NAIVE:
        lanes["per_token"] = PerTokenPolicy(
            settings.per_token_batch_size,
            pool=pool,
            reuse_cache=False,
            max_batch_tokens=settings.per_token_max_batch_tokens,
            max_model_len=header.max_model_len,
            ageing_s=settings.ageing_s,
        )
    return lanes


def tiny(**settings: object) -> Settings:
    sizes: dict[str, object] = {"static_batch_size": 3, "per_token_batch_size": 3, "max_num_seqs": 4}
    return Settings(**{**sizes, "max_num_batched_tokens": 7, "ageing_s": 5.0, **settings})  # type: ignore[arg-type]


BOUNDED = {"static_max_batch_tokens": 12, "per_token_max_batch_tokens": 20}
ALL = ("static", "per_token", "continuous")
SCENES = {
    "static": Scene(("static",), tiny()),
    "static, bounded": Scene(("static",), tiny(static_max_batch_tokens=12)),
    "static, waits for company": Scene(("static",), tiny(static_max_wait=2.0)),
    "per_token": Scene(("per_token",), tiny()),
    "naive": Scene(("per_token",), tiny(per_token_max_batch_tokens=20), is_naive=True),
    "continuous": Scene(("continuous",), tiny()),
    "all three": Scene(ALL, tiny()),
    "all three, bounded": Scene(ALL, tiny(static_max_wait=2.0, **BOUNDED)),
}


@lru_cache(4096)
def text_alone(
    prompt: tuple[int, ...], max_tokens: int, min_tokens: int, ignore_eos: bool, cache_tokens: int
) -> tuple[int, ...]:
    """The tokens that one text alone would get, by a plain loop without any cache."""
    known = list(prompt)
    while True:
        known.append(next_token(known, VOCAB, eos_token_id=EOS, eos_rate=EOS_RATE))
        num_output = len(known) - len(prompt)
        if known[-1] == EOS and not ignore_eos and num_output >= min_tokens:
            break
        if num_output == max_tokens or len(known) > cache_tokens:
            break
    return tuple(known[len(prompt) :])
