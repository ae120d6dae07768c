"""What a model's makers suggest to sample with.

Owns which keys of ``generation_config.json`` are such suggestions.  They are shown, never applied in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everystep.architecture import Checkpoint
from everystep.checkpoint.fields import MAX_COUNT, is_finite

FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty")
COUNTS = ("top_k",)


def suggested_sampling(checkpoint: Checkpoint) -> dict[str, float | int]:
    """By the names of request parameters; empty where nothing is suggested, or greedy decoding is."""
    return sampling_of(checkpoint.generation_defaults)


def sampling_of(generation_config: Mapping[str, Any]) -> dict[str, float | int]:
    """What isn't of the right type is left out: a suggestion that can't be read is none."""
    if generation_config.get("do_sample") is False:
        return {}
    numbers = {key: value for key, value in generation_config.items() if type(value) in (int, float)}
    found: dict[str, float | int] = {
        key: float(numbers[key]) for key in FLOATS if key in numbers and is_finite(numbers[key])
    }
    counts = {key: numbers[key] for key in COUNTS if isinstance(numbers.get(key), int)}
    return found | {key: count for key, count in counts.items() if 0 <= count <= MAX_COUNT}
