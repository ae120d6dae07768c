"""The experiments of ``where_the_64x.py``: who runs what, and which two cases make a factor.

Owns the sizes, chosen so that a piece takes less than three minutes on two slow cores.  Runs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PROMPT = 6  # tokens, as the benchmark's
SHARED: Mapping[str, Any] = {"kv_cache_gib": 2, "max_num_seqs": 64}


@dataclass(frozen=True)
class Process:
    """One worker: kind, whose Python, settings beyond the shared ones."""

    kind: str  # core | http
    python: str  # own | torch
    settings: Mapping[str, Any]


HF = {"runner": "hf-generate"}
PROCESSES = {
    "hf": Process("core", "torch", HF),
    "hf over HTTP": Process("http", "torch", HF),
    "f32": Process("core", "own", {"precision": "f32", "static_batch_size": 64}),
    "int8": Process("core", "own", {"precision": "int8", "static_batch_size": 64}),
    "int8 over HTTP": Process("http", "own", {"precision": "int8"}),
}


@dataclass(frozen=True)
class Case:
    """One thing to time: a process, a lane with its seats, and prompts by their lengths, in and out."""

    process: str
    lane: str
    seats: int
    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    reuse_cache: bool = True
    wants_steps: bool = False
    passes: int = 1  # in a turn, of which the median counts

    @property
    def warm(self) -> Case:
        """The same lane as full as it will be, a few tokens long."""
        num = min(self.seats, len(self.prompts))
        return Case(self.process, self.lane, self.seats, self.prompts[:num], (3,) * num, self.reuse_cache)


@dataclass(frozen=True)
class Piece:
    """Cases that take turns, ``repeats`` rounds of them."""

    about: str
    repeats: int
    cases: Mapping[str, Case] = field(default_factory=dict)


def equal(process: str, lane: str, seats: int, n: int, tokens: int, **more: Any) -> Case:
    return Case(process, lane, seats, (PROMPT,) * n, (tokens,) * n, **more)


def varied(process: str, lane: str, seats: int, n: int, **more: Any) -> Case:
    """Outputs drawn once and for all: many short, few long, 20 on average."""
    return Case(process, lane, seats, (PROMPT,) * n, lengths(n), **more)


def lengths(n: int, mean: int = 20) -> tuple[int, ...]:
    """``n`` lengths whose sum is exactly ``n * mean``, so that equal and varied loads ask for the same tokens."""
    rng = random.Random(n)
    wishes = [rng.lognormvariate(0.0, 0.8) for _ in range(n)]
    drawn = [max(2, round(wish * n * mean / sum(wishes))) for wish in wishes]
    while (over := sum(drawn) - n * mean) != 0:
        place = rng.randrange(n)
        drawn[place] = max(2, drawn[place] - (1 if over > 0 else -1))
    return tuple(drawn)


PIECES = {
    "total": Piece(
        "the whole: hand-written, 50 tokens, over HTTP, against continuous, 20 tokens, over HTTP; N = 64",
        1,
        {
            "hand-written": equal("hf over HTTP", "static", 4, 64, 50),
            "continuous": equal("int8 over HTTP", "continuous", 64, 64, 20, passes=3),
        },
    ),
    "tokens": Piece(
        "tokens per request: 50 against 20, hand-written, two rounds of 4",
        4,
        {"50 tokens": equal("hf", "static", 4, 8, 50), "20 tokens": equal("hf", "static", 4, 8, 20)},
    ),
    "hand-written-crossing": Piece(
        "HTTP and the process crossing of the hand-written path, N = 1 and 4",
        5,
        {
            "HTTP, N = 1": equal("hf over HTTP", "static", 4, 1, 20, passes=3),
            "core, N = 1": equal("hf", "static", 4, 1, 20, passes=3),
            "HTTP, N = 4": equal("hf over HTTP", "static", 4, 4, 20),
            "core, N = 4": equal("hf", "static", 4, 4, 20),
        },
    ),
    "kernels": Piece(
        "kernels, then precision: the same static schedule on three engines, N = 16",
        4,
        {
            "hf-generate f32": equal("hf", "static", 4, 16, 20),
            "everystep f32": equal("f32", "static", 4, 16, 20),
            "everystep int8": equal("int8", "static", 4, 16, 20),
        },
    ),
    "seats": Piece(
        "seats per round, then round borders where lengths are equal, N = 64",
        5,
        {
            "static 4": equal("int8", "static", 4, 64, 20),
            "static 64": equal("int8", "static", 64, 64, 20),
            "continuous 64": equal("int8", "continuous", 64, 64, 20),
        },
    ),
    "crossing": Piece(
        "HTTP and the process crossing of the continuous lane, N = 1 and 64",
        5,
        {
            "HTTP, N = 1": equal("int8 over HTTP", "continuous", 64, 1, 20, passes=5),
            "core, N = 1": equal("int8", "continuous", 64, 1, 20, passes=5),
            "HTTP, N = 64": equal("int8 over HTTP", "continuous", 64, 64, 20),
            "core, N = 64": equal("int8", "continuous", 64, 64, 20),
        },
    ),
    "rows": Piece(
        "what a round costs by its rows: all N in one batch",
        3,
        {
            f"{engine}, {n} rows": equal(engine, "static", 64, n, 20)
            for n in (1, 4, 16, 64)
            for engine in ("hf", "int8")
        },
    ),
    "borders": Piece(
        "round borders: lengths equal and varied, 20 tokens on average",
        3,
        {
            "static 4, equal": equal("int8", "static", 4, 16, 20),
            "per_token 4, equal": equal("int8", "per_token", 4, 16, 20),
            "static 4, varied": varied("int8", "static", 4, 16),
            "per_token 4, varied": varied("int8", "per_token", 4, 16),
            "static 64, varied": varied("int8", "static", 64, 128),
            "continuous 64, varied": varied("int8", "continuous", 64, 128),
        },
    ),
    "cache": Piece(
        "no KV cache: the stream path that reads the whole text again at each token, N = 4",
        3,
        {
            f"{words}, {tokens} tokens": equal("int8", "per_token", 4, 4, tokens, reuse_cache=is_kept)
            for tokens in (20, 50)
            for words, is_kept in (("cache kept", True), ("read again", False))
        },
    ),
    "padding": Piece(
        "one long prompt among three short ones: padded by generate(), packed by everystep",
        4,
        {
            f"{engine}, {words}": Case(engine, "static", 4, prompts, (20,) * 4)
            for engine in ("hf", "f32")
            for words, prompts in (("6 6 6 6", (6, 6, 6, 6)), ("6 6 6 128", (6, 6, 6, 128)))
        },
    ),
    "picture": Piece(
        "step logs of the three lanes for the figure: 12 prompts, lengths varied",
        1,
        {
            "static": varied("int8", "static", 4, 12, wants_steps=True),
            "per_token": varied("int8", "per_token", 4, 12, wants_steps=True),
            "continuous": varied("int8", "continuous", 64, 12, wants_steps=True),
        },
    ),
}


@dataclass(frozen=True)
class Link:
    """A factor: how many times as fast ``after`` is as ``before``, for the same prompts."""

    words: str
    piece: str
    before: str
    after: str
    short: str = ""  # for a figure


CHAIN = (
    Link(
        "HTTP and crossing taken away (hand-written, N = 4)",
        "hand-written-crossing",
        "HTTP, N = 4",
        "core, N = 4",
        "no HTTP, no process crossing",
    ),
    Link("50 tokens → 20", "tokens", "50 tokens", "20 tokens", "50 tokens → 20"),
    Link(
        "kernels: `generate()` → OpenVINO graph, both f32, static 4",
        "kernels",
        "hf-generate f32",
        "everystep f32",
        "kernels: generate() → OpenVINO graph",
    ),
    Link(
        "precision: f32 → int8 weights, static 4",
        "kernels",
        "everystep f32",
        "everystep int8",
        "precision: f32 → int8 weights",
    ),
    Link("seats: static 4 → static 64", "seats", "static 4", "static 64", "seats: static 4 → static 64"),
    Link(
        "round borders: static 64 → continuous 64, equal lengths",
        "seats",
        "static 64",
        "continuous 64",
        "no round borders (equal lengths)",
    ),
    Link(
        "HTTP and crossing put back (continuous, N = 64)",
        "crossing",
        "core, N = 64",
        "HTTP, N = 64",
        "HTTP and process crossing again",
    ),
)
TOTAL = Link("measured directly", "total", "hand-written", "continuous")
BESIDE = (
    Link("HTTP and crossing, hand-written, N = 1", "hand-written-crossing", "HTTP, N = 1", "core, N = 1"),
    Link("HTTP and crossing, continuous, N = 1", "crossing", "HTTP, N = 1", "core, N = 1"),
    Link("seats first: `generate()` with 4 rows → 64 rows, per prompt", "rows", "hf, 4 rows", "hf, 64 rows"),
    Link("kernels and precision then: 64 rows, `generate()` → everystep int8", "rows", "hf, 64 rows", "int8, 64 rows"),
    Link("borders, 4 seats, equal lengths: static → per_token", "borders", "static 4, equal", "per_token 4, equal"),
    Link("borders, 4 seats, varied lengths: static → per_token", "borders", "static 4, varied", "per_token 4, varied"),
    Link(
        "borders, 64 seats, 128 varied prompts: static → continuous",
        "borders",
        "static 64, varied",
        "continuous 64, varied",
    ),
    Link("cache: read again → kept, 20 tokens", "cache", "read again, 20 tokens", "cache kept, 20 tokens"),
    Link("cache: read again → kept, 50 tokens", "cache", "read again, 50 tokens", "cache kept, 50 tokens"),
    Link(
        "padding: a 128-token prompt beside three short ones, `generate()`", "padding", "hf, 6 6 6 128", "hf, 6 6 6 6"
    ),
    Link("the same, packed", "padding", "f32, 6 6 6 128", "f32, 6 6 6 6"),
)
