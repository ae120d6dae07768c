"""A second compiled graph with fixed shapes for the commonest lone case: one row, one token.

Owns that graph's inputs, bound once and written in place.  Shapes known at compile time spare per-layer work that a
dynamic graph repeats each step; the KV tensors are the dynamic graph's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import openvino as ov

from everystep.types import Row


class StaticDecode:
    """``run`` gives the logits ``[1, vocab]`` of a row with one new token."""

    def __init__(
        self,
        model: ov.Model,
        compile_model: Callable[[ov.Model], ov.CompiledModel],
        cache: Mapping[str, ov.Tensor],
        block_size: int,
        max_blocks: int,
    ) -> None:
        self._block_size = block_size
        shapes = {name: [1] for name in ("input_ids", "position_ids", "past_lens", "sample_idx")}
        shapes |= {name: [2] for name in ("subsequence_begins", "block_indices_begins")}
        model.reshape({**shapes, "block_indices": [max_blocks]})
        self._request = compile_model(model).create_infer_request()
        self._ids = self._bind("input_ids", np.zeros(1, np.int64))
        self._position = self._bind("position_ids", np.zeros(1, np.int64))
        self._past = self._bind("past_lens", np.zeros(1, np.int32))
        self._blocks = self._bind("block_indices", np.zeros(max_blocks, np.int32))
        self._block_begins = self._bind("block_indices_begins", np.zeros(2, np.int32))
        self._context = self._bind("max_context_len", np.zeros((), np.int32))
        self._constant = (
            self._bind("subsequence_begins", np.array([0, 1], np.int32)),
            self._bind("sample_idx", np.zeros(1, np.int64)),
        )
        self._warm_up(cache)
        for name, tensor in cache.items():
            self._request.set_tensor(name, tensor)

    def run(self, row: Row) -> npt.NDArray[np.float32]:
        num_blocks = -(-row.end // self._block_size)
        self._ids[0] = row.sequence.token_ids[row.start]
        self._position[0] = self._past[0] = row.start
        self._blocks[:num_blocks] = row.sequence.block_ids[:num_blocks]
        self._block_begins[1] = num_blocks
        self._context[...] = row.end
        self._request.infer()
        logits: npt.NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits

    def _warm_up(self, cache: Mapping[str, ov.Tensor]) -> None:
        """The first pass repacks weights.  It writes into a block of its own, since the cache is in use by now."""
        for name, tensor in cache.items():
            self._request.set_tensor(name, ov.Tensor(tensor.element_type, [1, *list(tensor.shape)[1:]]))
        self._block_begins[1] = self._context[...] = 1
        self._request.infer()

    def _bind(self, name: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        self._request.set_tensor(name, ov.Tensor(array, shared_memory=True))
        return array
