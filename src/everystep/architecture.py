"""What a model is, apart from how it is computed: hyperparameters, weights by name, tokenizer data.

Owns the types that ``checkpoint`` fills and that ``runner`` and ``text`` are handed.  Ignorant of file formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Family = Literal["llama", "mistral", "qwen2", "qwen3", "opt", "gpt2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Rotary scaling as in Llama 3 (``llama3``) or by a plain factor (``linear``)."""

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Hyperparameters of a decoder-only model, in Hugging Face's terms."""

    family: Family
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_context_len: int
    norm_eps: float
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    activation: Literal["silu", "relu", "gelu", "gelu_tanh"] = "silu"
    has_attention_bias: bool = False
    is_head_tied: bool = True


class Weights(Protocol):
    """Arrays by Hugging Face name (``model.layers.0.self_attn.q_proj.weight``), read on demand.

    Linear weights are ``[out_features, in_features]`` whatever the file's layout (GPT-2's Conv1D is transposed
    by the reader), rotary weights in the rotate-half order of Hugging Face (GGUF's permutation undone).
    """

    def names(self) -> Iterable[str]: ...

    def __contains__(self, name: object) -> bool: ...

    def load(self, name: str) -> npt.NDArray[np.float32]:
        """The array, dequantised; a fresh copy that the caller owns.  Raises :class:`ModelError` if absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerData:
    """All that ``text`` needs to build a tokenizer.

    ``tokenizer_json`` is the content of a Hugging Face ``tokenizer.json`` (the GGUF reader writes one from its
    metadata).  ``add_bos`` and ``add_eos`` say what a raw prompt gets; ``None`` leaves it to the post-processor.
    """

    tokenizer_json: str
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    pad_token: str | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    chat_template: str | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()  # every id that ends a text, generation_config's list included
    source: str = field(default="the model", compare=False)  # file or folder, for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What the server must know of a model whatever computes it: any causal model has these."""

    model_type: str  # Hugging Face's name of the architecture: llama, gemma3_text, gpt_neox
    vocab_size: int
    max_context_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model on disk, opened: cheap to hold, weights unread.

    Every model has an ``outline``.  ``architecture`` and ``weights`` raise :class:`UnsupportedModel` for a family that
    has no graph of ours; runners that bring their own model code take the files under ``path`` instead.
    """

    name: str
    path: str
    content_key: str  # hex; changes with any byte of a GGUF file, or of a folder's config and weights
    outline: Outline
    read_architecture: Callable[[], Architecture]
    read_weights: Callable[[], Weights]
    read_tokenizer: Callable[[], TokenizerData]  # on demand: only the process that handles text pays for it
    check_tokenizer: Callable[[], None] = lambda: None  # cheap: raises ModelError where there is none to be read
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)  # shown, never silently applied

    @property
    def architecture(self) -> Architecture:
        return self.read_architecture()

    @property
    def weights(self) -> Weights:
        return self.read_weights()

    @property
    def tokenizer(self) -> TokenizerData:
        return self.read_tokenizer()
