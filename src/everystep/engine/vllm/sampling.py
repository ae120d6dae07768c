"""Our sampling parameters as vLLM's, and those of our values that vLLM would change or doesn't take.

Owns the mapping: nothing is dropped, nothing is changed but the seed's top bit.  Ignorant of vLLM's classes.
"""

from __future__ import annotations

from typing import Any

from everystep.errors import InvalidParameter
from everystep.messages import Submit
from everystep.sampling_params import SamplingParams

MAX_TEMPERATURE = 2.0
MIN_TEMPERATURE = 0.01  # vLLM raises what is above 0 and below this
SEED_MASK = 2**63 - 1  # vLLM takes signed seeds, and -1 for none


def refuse_undone(params: SamplingParams) -> None:
    """Raise :class:`InvalidParameter` for what our own lanes take and vLLM doesn't."""
    if params.temperature > MAX_TEMPERATURE:
        raise InvalidParameter(
            f"temperature={params.temperature:g} is above vLLM's limit of {MAX_TEMPERATURE:g}", param="temperature"
        )
    if 0 < params.temperature < MIN_TEMPERATURE:
        raise InvalidParameter(
            f"temperature={params.temperature:g}: vLLM would raise it to {MIN_TEMPERATURE:g}; 0 is greedy",
            param="temperature",
        )


def engine_params(submit: Submit) -> dict[str, Any]:
    """Keywords of ``vllm.SamplingParams`` for one sequence.

    End-of-text tokens go as stop tokens, because a model may have several and vLLM would know one.  Stop strings stay
    on our side, with the text.  A sequence whose client named no seed gets none: vLLM draws those of a batch together.
    """
    params = submit.params
    ends = () if params.ignore_eos else submit.eos_token_ids
    return {
        "n": 1,
        "max_tokens": params.max_tokens,
        "min_tokens": params.min_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "logit_bias": dict(params.logit_bias) or None,
        "seed": None if params.seed is None or params.is_greedy else submit.seed & SEED_MASK,
        "stop_token_ids": sorted({*ends, *params.stop_token_ids}),
        "ignore_eos": True,
        "logprobs": params.logprobs,
    }
