"""Which attention kernel a GPU gets, and with which block size.

Owns the choice: by what the installed libraries offer (their signatures, never version numbers) and by a trial, in
which a kernel must agree with plain arithmetic on the very device before any model uses it.  Ignorant of models.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from everystep.runner.torch_paged.cuda_flashinfer import FlashInferAttention
from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
from everystep.runner.torch_paged.cuda_needs import AttentionNeeds
from everystep.runner.torch_paged.cuda_trial import worst_difference
from everystep.runner.torch_paged.cuda_triton import TritonAttention
from everystep.runner.torch_paged.cuda_varlen import VarlenAttention, paged_function
from everystep.runner.torch_paged.step_batch import AttentionKernel

logger = logging.getLogger(__name__)

BLOCK_SIZE = 16
VARLEN_BLOCK_SIZES = (16, 64, 256)  # FlashAttention 2 as torch has it takes multiples of 256, later ones less
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}  # outputs are means of unit normals


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel, and the block size of the cache that it reads.

    ``grows_with_room``: in a graph its work is that of the longest context which the graph has room for, so that
    graphs are captured for several lengths.
    """

    kernel: AttentionKernel
    block_size: int = BLOCK_SIZE
    is_capturable: bool = True
    grows_with_room: bool = False


def choose_kernel(needs: AttentionNeeds, device: torch.device, names: frozenset[str] | None = None) -> KernelChoice:
    """The first that passes its trial; ``names`` are those to consider.  Plain SDPA, the last, always does."""
    for name, make in _candidates(needs, device):
        if names is not None and name not in names:
            continue
        try:
            choice = make()
            difference = worst_difference(choice.kernel, needs, choice.block_size, device)
        except Exception as error:  # whatever a library raises for a device or a shape that it doesn't do
            logger.info("attention kernel %s won't do: %s: %s", name, type(error).__name__, str(error)[:200])
            continue
        if difference <= TOLERANCE[needs.dtype]:
            logger.info("attention kernel %s, blocks of %d tokens", name, choice.block_size)
            return choice
        logger.warning("attention kernel %s is left out: it is off by %.2g on this device", name, difference)
    return gathered()


def gathered() -> KernelChoice:
    """torch's own SDPA over gathered blocks: exact in f32, and on every device."""
    return KernelChoice(GatheredAttention(), grows_with_room=True)


def _candidates(needs: AttentionNeeds, device: torch.device) -> Iterator[tuple[str, Callable[[], KernelChoice]]]:
    """f32 is the exact mode: it stays with torch's plain arithmetic."""
    is_half = needs.dtype in (torch.bfloat16, torch.float16)
    has_one_dim = needs.key_dim == needs.value_dim
    function = paged_function()
    if function is not None and is_half and has_one_dim and needs.softcaps == {None}:
        for size, has_begins in itertools.product(VARLEN_BLOCK_SIZES, (True, False)):
            yield "varlen", partial(_varlen, function, size, has_begins)
    if FlashInferAttention.is_offered() and is_half and has_one_dim:
        yield "flashinfer", lambda: KernelChoice(FlashInferAttention(device), is_capturable=False)
    if TritonAttention.is_offered() and is_half:
        yield "triton", lambda: KernelChoice(TritonAttention())


def _varlen(function: Callable[..., Any], block_size: int, has_begins: bool) -> KernelChoice:
    return KernelChoice(VarlenAttention(function, has_begins), block_size)
