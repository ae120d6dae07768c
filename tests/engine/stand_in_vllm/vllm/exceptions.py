"""``vllm.exceptions``."""

from __future__ import annotations


class VLLMClientError(Exception):
    pass


class VLLMValidationError(VLLMClientError, ValueError):
    pass
