"""Bodies of the four native endpoints and of the tokenizer's two.

Owns names, types, defaults and words for the docs.  Ranges are :class:`everystep.sampling_params.SamplingParams`'s.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from everystep.api.first_fault import Texts, TokenIds, only_first_unknown
from everystep.api.ranges import MaxTokens, Seed, Stop, Stops, Temperature, TopK, TopP, whole

DEFAULT_MAX_TOKENS = 20

# What crosses to the worker is a 64-bit number; more than this no priority needs.
Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1, description="lower goes first"), BeforeValidator(whole)]
TimeoutS = Annotated[float, Field(gt=0, allow_inf_nan=False)]
TIMEOUT_WORDS = "seconds that the request may take in all; at most --request-timeout, which is the default"


class Body(BaseModel):
    """Unknown fields are refused, and no type is guessed: ``"20"`` is no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _complain_once(cls, data: object) -> object:
        return only_first_unknown(data, cls.model_fields)


class NativeOptions(Body):
    """What all four native endpoints take beside the prompt."""

    max_tokens: MaxTokens = Field(
        DEFAULT_MAX_TOKENS, description="most tokens generated; if left out, less where the context has less room"
    )
    temperature: Temperature = Field(0.0, description="0 is greedy")
    top_p: TopP = 1.0
    top_k: TopK | None = Field(None, description="0 or null: off")
    seed: Seed | None = Field(None, description="same seed, same text")
    stop: Stop | Stops | None = Field(None, description="strings that end the text; they aren't part of it")
    ignore_eos: bool = Field(False, description="go on behind the end of the text")
    priority: Priority = 0
    timeout_s: TimeoutS | None = Field(None, description=TIMEOUT_WORDS)
    echo: bool = Field(False, description="put the prompt before the text")


class LaneOptions(NativeOptions):
    """The same, for endpoints that run in our lanes."""

    policy: str | None = Field(None, description="a lane of this server; null: the endpoint's own")


class PromptBody(LaneOptions):
    """``/basic_generate`` and ``/generate_stream``."""

    prompt: str


class PromptsBody(LaneOptions):
    """``/generate``."""

    prompts: Texts


class VllmBody(NativeOptions):
    """``/generate_vllm``: vLLM schedules for itself, so there is no lane to choose."""

    prompts: Texts


class TextReply(BaseModel):
    generated_text: str


class TextsReply(BaseModel):
    generated_texts: list[str] = Field(description="in the order of the prompts")


class TokenizeBody(Body):
    """``/tokenize``."""

    prompt: str


class TokenizeReply(BaseModel):
    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeBody(Body):
    """``/detokenize``."""

    tokens: TokenIds


class DetokenizeReply(BaseModel):
    prompt: str = Field(description="control tokens included")
