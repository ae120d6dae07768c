"""Before a model serves: does a packed pass over our cache say what the model says by itself?

Owns the trial and its tolerance.  Ignorant of how either pass is computed.

Two texts are read in two steps, one in chunks and one with a token to decode, over blocks that lie out of order.  What
escapes the probe, such as a state beside the cache or positions that the model counts for itself, shows here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from everystep.errors import UnsupportedModel
from everystep.runner.torch_paged.layer_caches import LayerShape, make_caches
from everystep.runner.torch_paged.paged_attention import PAGED, PagedStep, forward_logits
from everystep.runner.torch_paged.step_batch import AttentionKernel
from everystep.runner.torch_paged.step_packing import pack
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence

CHUNKED, DECODED = (9, 12), (18, 1)  # new tokens by step
TRIAL_BLOCK_SIZE = 16
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}  # of the logits' spread


def check_against_eager(
    model: PreTrainedModel, layers: tuple[LayerShape, ...], kernel: AttentionKernel, max_context_len: int
) -> None:
    """Raises :class:`UnsupportedModel` where the difference is more than rounding."""
    texts = _texts(model.config.get_text_config().vocab_size, max_context_len)
    with torch.inference_mode():
        packed = _packed_logits(model, layers, kernel, texts)
        model.set_attn_implementation("eager")
        try:
            expected = torch.cat([_eager_logits(model, text.token_ids) for text in texts])
        finally:
            model.set_attn_implementation(PAGED)
    difference = float((packed - expected).square().mean().sqrt() / expected.std())
    if not difference <= TOLERANCE[model.dtype]:  # NaN fails too
        raise UnsupportedModel(
            f"its logits over a paged cache differ from its own by {difference:.2g} of their spread "
            f"(at most {TOLERANCE[model.dtype]:g} is rounding)"
        )


def _texts(vocab_size: int, max_context_len: int) -> tuple[Sequence, Sequence]:
    rng = np.random.default_rng(0)
    chunked, decoded = (
        _text(rng.integers(0, vocab_size, min(length, max_context_len)).tolist(), blocks)
        for length, blocks in ((sum(CHUNKED), [3, 0]), (sum(DECODED), [2, 1]))
    )
    return chunked, decoded


def _text(token_ids: list[int], block_ids: list[int]) -> Sequence:
    params = SamplingParams(max_tokens=1)
    return Sequence("trial", "trial", "trial", token_ids, len(token_ids), params, 0, frozenset(), block_ids=block_ids)


def _packed_logits(
    model: PreTrainedModel, layers: tuple[LayerShape, ...], kernel: AttentionKernel, texts: tuple[Sequence, Sequence]
) -> Tensor:
    """``[2, vocab]`` behind the texts' last tokens."""
    caches = make_caches(layers, 4, TRIAL_BLOCK_SIZE, model.dtype, model.device)
    first_lens = (min(CHUNKED[0], len(texts[0].token_ids) - 1), len(texts[1].token_ids) - 1)
    first = [Row(text, 0, 0, length) for text, length in zip(texts, first_lens, strict=True)]
    second = [Row(text, 0, row.end, text.num_tokens - row.end) for text, row in zip(texts, first, strict=True)]
    logits = torch.empty(0)
    for rows in (first, second):
        batch = pack(rows, TRIAL_BLOCK_SIZE).to(model.device)
        logits = forward_logits(model, PagedStep(batch, caches, kernel))
    return logits.float()


def _eager_logits(model: PreTrainedModel, token_ids: list[int]) -> Tensor:
    """``[1, vocab]``."""
    logits: Tensor = model(input_ids=torch.tensor([token_ids], device=model.device), use_cache=False).logits[:, -1]
    return logits.float()
