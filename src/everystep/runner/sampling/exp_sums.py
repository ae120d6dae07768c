"""Sums of exponentials over blocks, the one heavy computation of a draw.

Owns a small OpenVINO model.  NumPy's float32 exponential costs three times as much where there is no AVX-512, and runs
on one thread; this one also uses the threads that the forward pass has just left.  Ignorant of what the sums mean.
"""

from __future__ import annotations

import numpy as np
import openvino as ov
import openvino.opset15 as ops
from numpy.typing import NDArray


class ExpSums:
    """One inference request with its tensors: called by one thread at a time."""

    def __init__(self, width: int, num_threads: int) -> None:
        config = {
            "INFERENCE_PRECISION_HINT": "f32",  # the plugin's default may be bfloat16
            "INFERENCE_NUM_THREADS": num_threads,
            "NUM_STREAMS": 1,
        }
        self._request = ov.Core().compile_model(_model(width), "CPU", config).create_infer_request()

    def __call__(
        self, values: NDArray[np.float32], tops: NDArray[np.float32], scales: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """``[n]``: Σ e^((value - top) · scale) over each of ``n`` blocks ``[n, width]``.

        Exponentials below the smallest normal float count as 0, those of -inf too.  A block's sum depends on that
        block alone, to the last bit.  NaN in ``values`` isn't passed on: look for it first.
        """
        inputs = [np.ascontiguousarray(values), tops[:, None].copy(), scales[:, None].copy()]
        for index, array in enumerate(inputs):
            # Shares the array's memory, which lives until the end of this call.
            self._request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        self._request.infer()
        return np.array(self._request.get_output_tensor(0).data)  # a copy: the tensor is written again


def _model(width: int) -> ov.Model:
    values = ops.parameter([-1, width], ov.Type.f32)
    tops = ops.parameter([-1, 1], ov.Type.f32)
    scales = ops.parameter([-1, 1], ov.Type.f32)
    weights = ops.exp(ops.multiply(ops.subtract(values, tops), scales))
    sums = ops.reduce_sum(weights, ops.constant(np.array([1], np.int32)), keep_dims=False)
    return ov.Model([ops.result(sums)], [values, tops, scales], "exp_sums")
