"""What any causal language model's config.json says, whatever computes it.

Owns what a causal language model is, and where each family writes the length of its context.
"""

from __future__ import annotations

from everystep.architecture import Outline
from everystep.checkpoint.fields import Fields
from everystep.errors import UnsupportedModel

# GPT-2, GPT-J and CodeGen; MPT; BLOOM and ChatGLM.  All others have the first.
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
MAX_NAME = 100  # characters of it in a message
CAUSAL_CLASSES = ("ForCausalLM", "LMHeadModel")


def read_outline(config: Fields) -> Outline:
    """Raises :class:`UnsupportedModel` for what is no causal language model, or doesn't say how long its context is."""
    model_type = config.text("model_type")
    if config.flag("is_encoder_decoder", False):
        raise UnsupportedModel(f"{config.source}: {_name(config)} is an encoder and a decoder, not a decoder alone")
    if config.raw("text_config") is not None:
        raise UnsupportedModel(f"{config.source}: {_name(config)} reads more than text, which isn't supported")
    if not is_causal(config):
        raise UnsupportedModel(f"{config.source}: {_name(config)} is no causal language model (…ForCausalLM)")
    return Outline(
        model_type=model_type,
        vocab_size=config.count("vocab_size"),
        max_context_len=_context_len(config),
    )


def is_causal(config: Fields) -> bool:
    """By the class that made it.  A config without a name of one is taken for a causal model's."""
    names = config.array("architectures", str)
    return not names or any(name.endswith(CAUSAL_CLASSES) for name in names)


def _context_len(config: Fields) -> int:
    key = next((key for key in CONTEXT_KEYS if config.raw(key) is not None), None)
    if key is None:
        raise UnsupportedModel(
            f"{config.source}: {_name(config)} says nothing of its context's length ({', '.join(CONTEXT_KEYS)}), "
            "as models that keep a state instead of a KV cache; those can't be served"
        )
    return config.count(key)


def _name(config: Fields) -> str:
    return (", ".join(config.array("architectures", str)) or config.text("model_type"))[:MAX_NAME]
