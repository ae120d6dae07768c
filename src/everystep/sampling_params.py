"""What a client may ask of one generation.

Owns the ranges of every sampling parameter.  Ignorant of logits, models and protocols.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from everystep.errors import InvalidParameter

MAX_SEED = 2**64 - 1
MAX_CHOICES = 128
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to draw the tokens of one prompt.  Checked when made: :class:`InvalidParameter` names value and limit.

    ``temperature=0`` is greedy.  ``top_k=0`` and ``min_p=0`` are off.  ``logprobs=k`` reports the drawn
    token and the ``k`` likeliest.  ``seed=None`` lets the engine choose one.  Penalties follow
    OpenAI (presence, frequency: over generated tokens) and CTRL (repetition: over prompt and generated
    tokens; Keskar et al., 2019).
    """

    max_tokens: int = 20
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _require_int("max_tokens", self.max_tokens, 0, 2**31 - 1)
        _require_float("temperature", self.temperature, 0.0, 100.0)
        _require_float("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _require_int("top_k", self.top_k, 0, 2**31 - 1)
        _require_float("min_p", self.min_p, 0.0, 1.0)
        _require_float("repetition_penalty", self.repetition_penalty, 0.0, 100.0, open_low=True)
        _require_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _require_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _require_int("n", self.n, 1, MAX_CHOICES)
        _require_int("min_tokens", self.min_tokens, 0, self.max_tokens)
        if self.seed is not None:
            _require_int("seed", self.seed, 0, MAX_SEED)
        if self.logprobs is not None:
            _require_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        _check_stops(self.stop)
        for token_id in self.stop_token_ids:
            _require_int("stop_token_ids", token_id, 0, 2**31 - 1)
        for token_id, bias in self.logit_bias.items():
            _require_int("logit_bias", token_id, 0, 2**31 - 1)
            _require_float("logit_bias", bias, -100.0, 100.0)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def needs_history(self) -> bool:
        """Whether the logits depend on which tokens came before, beyond the forward pass."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


def _check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidParameter(f"stop has {len(stops)} strings; at most {MAX_STOP_STRINGS} are allowed", param="stop")
    if any(not isinstance(stop, str) or not stop for stop in stops):
        raise InvalidParameter("stop must hold non-empty strings", param="stop")


def _require_int(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidParameter(f"{name}={value!r} must be an integer from {low} to {high}", param=name)


def _require_float(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not low <= value <= high or (open_low and value == low):
        border = "above" if open_low else "from"
        raise InvalidParameter(f"{name}={value!r} must be a number {border} {low:g} to {high:g}", param=name)
