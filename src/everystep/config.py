"""Every setting, once: its name, type, range, default and one line of help.

Owns :class:`Settings`.  Command-line flags, ``EVERYSTEP_*`` variables and keys of a TOML file are all derived
from these fields, so the three can't disagree.  Ignorant of where a value came from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    model_validator,
)

from everystep.api_keys import HIDDEN, MAX_KEYS, HashedKey, check_key

RunnerName = Literal["auto", "openvino", "torch", "hf-generate", "vllm", "fake"]
PrecisionName = Literal["auto", "f32", "bf16", "int8", "int4"]
DeviceName = Literal["auto", "cpu", "cuda"]
PolicyName = Literal["static", "per_token", "continuous", "vllm"]

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
SECRETS = ("api_key", "vllm_api_key")  # never shown, never handed on


def _hashed(key: object) -> HashedKey:
    if isinstance(key, HashedKey):
        return key
    if isinstance(key, SecretStr):
        key = key.get_secret_value()
    if not isinstance(key, str):
        raise ValueError("a key must be text")
    return HashedKey(key)


Key = Annotated[HashedKey, PlainValidator(_hashed), PlainSerializer(lambda key: HIDDEN, str, when_used="json")]


def _sendable(key: SecretStr) -> SecretStr:
    check_key(key.get_secret_value())
    return key


class Settings(BaseModel):
    """All settings of a server or an offline engine.  Frozen; unknown names are refused.

    A plain API key goes in and only its hash is kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # model and runner
    model: str = Field("smollm2-135m", min_length=1, description="model name, GGUF file, Hugging Face folder or hub id")
    served_model_name: str | None = Field(None, description="name that clients use (default: the --model name)")
    runner: RunnerName = Field("auto", description="what computes the forward pass")
    precision: PrecisionName = Field("auto", description="weights' precision; f32 is exact and batch-invariant")
    deterministic: bool = Field(False, description="same tokens alone and in a batch, also with int8 weights")
    device: DeviceName = Field("auto", description="where the torch runner computes; auto takes a GPU that is there")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        0.9, description="share of the GPU's memory that weights, activations and KV cache may take together"
    )
    threads: Count | None = Field(None, description="compute threads (default: the cores this process may use)")
    cache_dir: Path | None = Field(None, description="where models and built graphs are kept")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="seed from which seedless requests draw theirs")

    # limits of the batch
    max_model_len: Count | None = Field(None, description="longest prompt + output in tokens (default: the model's)")
    kv_cache_gib: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="KV cache in GiB (default: what memory allows and the seats can fill)"
    )
    max_num_seqs: Count = Field(64, description="seats of the continuous lane")
    max_num_batched_tokens: Count = Field(512, description="token budget of a continuous step")
    prefix_cache: bool = Field(True, description="share the KV blocks of equal prompt beginnings")
    static_batch_size: Count = Field(4, description="seats of a static round")
    static_max_batch_tokens: Count | None = Field(None, description="most prompt tokens a static round takes")
    static_max_wait: SecondsOrZero = Field(0.0, description="seconds a static round waits for more to come")
    per_token_batch_size: Count = Field(4, description="seats of the per-token lane")
    per_token_max_batch_tokens: Count | None = Field(None, description="most context tokens the per-token lane seats")
    default_policy: PolicyName = Field("continuous", description="lane of /v1/*")
    ageing_s: Seconds = Field(10.0, description="seconds of waiting that raise a priority by one")

    # the line and its deadlines
    max_queue: Count = Field(256, description="most sequences that may wait, over all lanes")
    max_queue_tokens: Count = Field(1_000_000, description="most prompt tokens that may wait, over all lanes")
    queue_timeout: Seconds | None = Field(None, description="seconds that a request may wait for a seat")
    request_timeout: Seconds | None = Field(None, description="seconds that a request may take in all")
    drain_timeout: SecondsOrZero = Field(30.0, description="seconds that running requests get at shutdown")
    stall_timeout: Seconds = Field(60.0, description="seconds without a step, though there is work, until unhealthy")

    # slow and many clients
    client_timeout: Seconds = Field(
        30.0, description="seconds that a client may take to send a request, or to take in what it is sent"
    )
    max_connections: Count = Field(4096, description="most connections at once, idle ones included")

    # the server
    host: str = Field("127.0.0.1", description="address to listen on")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(8000, description="port to listen on; 0 takes a free one")
    api_key: tuple[Key, ...] = Field(
        (), max_length=MAX_KEYS, description="accepted API keys; may be given more than once; better in a file"
    )
    api_key_file: Path | None = Field(None, description="file of accepted API keys, one a line")
    insecure_no_auth: bool = Field(
        False, description="without an API key let in whoever reaches the server, also from elsewhere"
    )
    max_body_mib: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(8.0, description="largest request body")
    step_log_size: Annotated[int, Field(ge=10_000)] = Field(10_000, description="steps that /steps remembers")
    record: Path | None = Field(None, description="write the schedule, prompts included, to this file for replay")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    log_json: bool = Field(False, description="log one JSON object a line")
    log_prompts: bool = Field(False, description="log the prompts of requests, which are never logged otherwise")

    otel: bool = Field(
        False, description="send a trace of each request to an OpenTelemetry collector, as OTEL_* variables say"
    )

    # vLLM beside our lanes
    vllm_python: Path | None = Field(None, description="Python of an environment that has vLLM")
    vllm_url: str | None = Field(None, description="OpenAI-compatible vLLM server to use")
    vllm_api_key: Annotated[SecretStr, AfterValidator(_sendable)] | None = Field(
        None, description="API key of the vLLM server; better given as a variable"
    )
    vllm_arg: tuple[str, ...] = Field(
        (), description="KEY=VALUE of vLLM's engine arguments; may be given more than once"
    )

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.insecure_no_auth and (self.api_key or self.api_key_file):
            given = "api_key" if self.api_key else "api_key_file"
            raise ValueError(f"insecure_no_auth lets everybody in, and {given} only some: drop one of them")
        if "@" in (self.vllm_url or ""):
            raise ValueError("vllm_url must not hold a name or a password, for it is logged: use vllm_api_key")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens={self.max_num_batched_tokens} is below max_num_seqs={self.max_num_seqs}: "
                "every decoding row needs one token of the budget"
            )
        return self

    @property
    def served_name(self) -> str:
        return self.served_model_name or self.model

    def without_secrets(self) -> Settings:
        """The same without any key: what a worker is told."""
        return self.model_copy(update={name: type(self).model_fields[name].default for name in SECRETS})
