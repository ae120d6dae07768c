"""``vllm.sampling_params``."""

from __future__ import annotations

import enum
import json
import os
from typing import Any

from vllm.exceptions import VLLMValidationError

REFUSED_TOP_K = 13  # a value that stands for whatever vLLM doesn't take


class RequestOutputKind(enum.Enum):
    CUMULATIVE = 0
    DELTA = 1


class SamplingParams:
    """Keeps its keywords, and writes them where the test wants to read them."""

    def __init__(self, **fields: Any) -> None:
        if fields["top_k"] == REFUSED_TOP_K:
            raise VLLMValidationError("top_k must not be unlucky")
        self.fields = fields
        if path := os.environ.get("STAND_IN_PARAMS"):
            with open(path, "a", encoding="utf-8") as file:
                print(json.dumps({**fields, "output_kind": fields["output_kind"].name}), file=file)
