"""Numbers of bodies: what counts as whole, and the ranges that the documentation shows.

Owns the documented ranges; :class:`everystep.sampling_params.SamplingParams` refuses what is out of them, in its own
words, and a test holds the two together.  JSON knows no integers: ``20.0`` is 20 as JSON Schema has it (clients whose
language knows floats only write it so), ``20.5`` and ``"20"`` are not.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from everystep.api.first_fault import Texts
from everystep.sampling_params import MAX_CHOICES, MAX_LOGPROBS, MAX_SEED, MAX_STOP_STRINGS

MAX_INT = 2**31 - 1
EXACT = 2.0**53  # beyond it a float may stand for another number than was meant


def whole(value: Any) -> Any:
    is_whole = type(value) is float and abs(value) <= EXACT and value.is_integer()
    return int(value) if is_whole else value


def _shown(**range_: Any) -> Any:
    return Field(json_schema_extra=range_)


Whole = Annotated[int, BeforeValidator(whole)]
MaxTokens = Annotated[Whole, _shown(minimum=1, maximum=MAX_INT)]
MaxTokensOrNone = Annotated[Whole, _shown(minimum=0, maximum=MAX_INT)]  # 0 for an echo alone
MinTokens = Annotated[Whole, _shown(minimum=0, maximum=MAX_INT)]
TopK = Annotated[Whole, _shown(minimum=0, maximum=MAX_INT)]
TopKOrOff = Annotated[Whole, _shown(minimum=-1, maximum=MAX_INT)]
Choices = Annotated[Whole, _shown(minimum=1, maximum=MAX_CHOICES)]
Seed = Annotated[Whole, _shown(minimum=-(2**63), maximum=MAX_SEED)]
Logprobs = Annotated[Whole, _shown(minimum=0, maximum=MAX_LOGPROBS)]
TruncateTo = Annotated[Whole, _shown(minimum=1, maximum=MAX_INT)]
Temperature = Annotated[float, _shown(minimum=0, maximum=100)]
TopP = Annotated[float, _shown(exclusiveMinimum=0, maximum=1)]
MinP = Annotated[float, _shown(minimum=0, maximum=1)]
RepetitionPenalty = Annotated[float, _shown(exclusiveMinimum=0, maximum=100)]
Penalty = Annotated[float, _shown(minimum=-2, maximum=2)]
Stop = Annotated[str, _shown(minLength=1)]
Stops = Annotated[Texts, _shown(maxItems=MAX_STOP_STRINGS)]
