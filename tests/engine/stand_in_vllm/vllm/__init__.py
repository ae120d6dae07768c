"""A stand-in for vLLM: the few names that our host uses, without a model.

It counts up from the prompt's last token, starts a child as vLLM starts its engine, and waits for a file if told so.
"""

from __future__ import annotations

from vllm.sampling_params import SamplingParams

__all__ = ["SamplingParams"]
