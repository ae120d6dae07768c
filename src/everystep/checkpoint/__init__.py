"""From a model's name to its files, and from its files to a :class:`everystep.architecture.Checkpoint`.

Owns model names, the cache of downloads, GGUF and safetensors.  Never modifies a model's files, never loads a pickle.

Names of arrays are Hugging Face's: ``model.layers.0.self_attn.q_proj.weight`` (Llama, Mistral, Qwen2, Qwen3; GGUF names
are translated), ``model.decoder.layers.0.fc1.weight`` (OPT), ``transformer.h.0.attn.c_attn.weight`` (GPT-2).  Linear
weights are ``[out_features, in_features]`` in every family: GPT-2's Conv1D layout is transposed here.  The table of
:mod:`everystep.checkpoint.expected` has them all, and a checkpoint's weights have exactly these names.
"""

from everystep.checkpoint.cached_models import cached_models
from everystep.checkpoint.converted import convert_into, converted_folder, hf_folder, is_hf_folder, is_whole
from everystep.checkpoint.download import Progress
from everystep.checkpoint.listed_model import ListedModel
from everystep.checkpoint.names import default_cache_dir, open_checkpoint
from everystep.checkpoint.pull import DEFAULT_MODEL, pull
from everystep.checkpoint.sampling_hints import suggested_sampling

__all__ = [
    "DEFAULT_MODEL",
    "ListedModel",
    "Progress",
    "cached_models",
    "convert_into",
    "converted_folder",
    "default_cache_dir",
    "hf_folder",
    "is_hf_folder",
    "is_whole",
    "open_checkpoint",
    "pull",
    "suggested_sampling",
]
