"""The torch runner: any causal model of transformers over our paged KV cache, on a CPU or a GPU.

Owns the attention function that is registered with transformers, the cache's tensors and the packing of a plan.
Ignorant of model code: what a layer is, transformers knows.
"""

from everystep.runner.torch_paged.torch_runner import TorchRunner

__all__ = ["TorchRunner"]
