"""Sums of exponentials over blocks, the one heavy computation of a draw.

Owns two small OpenVINO models.  NumPy's float32 exponential takes three times as long where there is no AVX-512, and
runs on one thread; these also use the threads that the forward pass has just left.  Ignorant of what the sums mean.

OpenVINO is imported where it computes: a torch runner on a GPU shares this package's other files and may lack it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from everystep.runner.openvino_core import openvino_core

if TYPE_CHECKING:
    import openvino as ov


class ExpSums:
    """Called by one thread at a time: each model has one inference request.

    A block's sum depends on that block alone, to the last bit.  Exponentials below the smallest normal float count
    as 0, those of -inf too.  NaN in ``values`` isn't passed on: look for it first.
    """

    def __init__(self, width: int, num_threads: int) -> None:
        config = {
            "INFERENCE_PRECISION_HINT": "f32",  # else bfloat16 where the processor has it
            "INFERENCE_NUM_THREADS": num_threads,
            "NUM_STREAMS": 1,
        }
        core = openvino_core()
        self._whole = core.compile_model(_model(width, has_pivots=False), "CPU", config).create_infer_request()
        self._above = core.compile_model(_model(width, has_pivots=True), "CPU", config).create_infer_request()

    def whole(
        self, values: NDArray[np.float32], tops: NDArray[np.float32], scales: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """``[n]``: Σ e^((value - top) · scale) over each of ``n`` blocks ``[n, width]``."""
        return _infer(self._whole, values, tops[:, None], scales[:, None])

    def above(
        self,
        values: NDArray[np.float32],
        tops: NDArray[np.float32],
        scales: NDArray[np.float32],
        pivots: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """``[n]``: the same over the values strictly above their block's pivot.  NumPy is slow at such masks."""
        return _infer(self._above, values, tops[:, None], scales[:, None], pivots[:, None])


def _infer(request: ov.InferRequest, *inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    import openvino as ov

    # Shared with the tensors, so alive until the end; a tensor shares no memory that is read-only.
    arrays = [np.require(array, np.float32, ["C", "W"]) for array in inputs]
    for index, array in enumerate(arrays):
        request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
    request.infer()
    return np.array(request.get_output_tensor(0).data)  # a copy: the tensor is written again


def _model(width: int, *, has_pivots: bool) -> ov.Model:
    import openvino as ov
    import openvino.opset15 as ops

    values = ops.parameter([-1, width], ov.Type.f32)
    tops, scales, pivots = (ops.parameter([-1, 1], ov.Type.f32) for _ in range(3))
    weights = ops.exp(ops.multiply(ops.subtract(values, tops), scales))
    if has_pivots:
        weights = ops.select(ops.greater(values, pivots), weights, ops.constant(np.float32(0.0)))
    sums = ops.reduce_sum(weights, ops.constant(np.array([1], np.int32)), keep_dims=False)
    inputs = [values, tops, scales, pivots] if has_pivots else [values, tops, scales]
    return ov.Model([ops.result(sums)], inputs, "exp_sums")
