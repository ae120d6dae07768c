"""A step on a GPU: prepared ahead where it can be, replayed from a graph where one fits, drawn on the device.

Owns the KV cache there, the graphs, the sampler, and the order in which host and device work.  Ignorant of loading and
of why these rows run.  A step waits for the device once, for its tokens.  (On a CPU device it runs as well, with
stand-ins for graphs and pinned memory: that is how most of it is tested.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from everystep.runner.finite import check_drawn
from everystep.runner.step_inputs import split
from everystep.runner.torch_paged.cuda_attention import KernelChoice
from everystep.runner.torch_paged.cuda_graphs import Capture, CudaCapture, DecodeGraphs, Room
from everystep.runner.torch_paged.cuda_memory import measure
from everystep.runner.torch_paged.device_copies import Arrival
from everystep.runner.torch_paged.device_foresight import DecodeStep, is_decode
from everystep.runner.torch_paged.device_inputs import HostStep, StepShape
from everystep.runner.torch_paged.device_sampling import DeviceSampler
from everystep.runner.torch_paged.layer_caches import block_bytes, make_caches
from everystep.runner.torch_paged.loading import LoadedModel
from everystep.runner.torch_paged.paged_attention import PagedStep, forward_logits
from everystep.runner.torch_paged.step_batch import LayerCache, StepBatch
from everystep.runner.torch_paged.step_packing import pack
from everystep.sampling_params import SamplingParams
from everystep.types import Row, StepResult
from everystep.types import Sequence as TokenSequence

MAX_PASS_TOKENS = 8192  # a larger step is computed in parts: bounds the activations, which are measured at the start
PROFILE_ROWS = 256  # rows that draw in the measured step
GREEDY = SamplingParams(max_tokens=1)
DRAWN = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.9, top_k=50)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A decode step and the graph that takes it; without one its kernels run one by one."""

    step: DecodeStep
    room: Room | None


class CudaPath:
    """Implements :class:`everystep.runner.torch_paged.torch_runner.DevicePath`."""

    def __init__(
        self,
        loaded: LoadedModel,
        choice: KernelChoice,
        *,
        gpu_memory_utilization: float = 0.9,
        has_graphs: bool = True,
        capture: Capture | None = None,
    ) -> None:
        """``capture`` stands in for CUDA's where there is none."""
        self._loaded = loaded
        self._choice = choice
        self._device = loaded.placement.device
        self._utilization = gpu_memory_utilization
        self.block_size = choice.block_size
        self.kernel_name = choice.kernel.name
        self.num_foreseen = 0  # steps whose inputs were ready before they were asked for
        self._sampler = DeviceSampler(loaded.vocab_size, self._device)
        self._caches: tuple[LayerCache, ...] = ()
        self._padding_block = 0
        self._has_graphs = has_graphs and choice.is_capturable
        self._capture = capture
        self.graphs: DecodeGraphs | None = None
        self._foreseen: _Prepared | None = None

    # --- memory ----------------------------------------------------------------------------------
    def allocate(self, num_blocks: int) -> None:
        """Make the KV cache, and one block more, for padding."""
        placement = self._loaded.placement
        self._caches = make_caches(self._loaded.layers, num_blocks, self.block_size, placement.dtype, self._device)
        self._padding_block = num_blocks

    def free_cache_bytes(self) -> int | None:
        """The device's allowed share less what weights and the largest step take.  Called before :meth:`allocate`.

        Graphs are captured later: they and what libraries take meanwhile live in the share that isn't allowed.
        """
        if self._device.type != "cuda":
            return None
        memory = measure(self._largest_step, self._device)
        spare = block_bytes(self._loaded.layers, self.block_size, self._loaded.placement.dtype)
        return memory.left_for_cache(self._utilization) - spare

    def _largest_step(self) -> None:
        """As many tokens as one pass takes, then a wide draw, over a cache for one text, which all rows write to."""
        longest = min(self._loaded.max_context_len, MAX_PASS_TOKENS)
        num_blocks = -(-longest // self.block_size)
        self.allocate(num_blocks)
        table = list(range(num_blocks))
        self.run([_dry_row(longest, 0, table, GREEDY) for _ in range(MAX_PASS_TOKENS // longest)])
        self.run([_dry_row(longest, longest - 1, table, DRAWN) for _ in range(PROFILE_ROWS)])
        self._caches, self._foreseen = (), None

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Run a prompt short and long, greedy and drawn, and capture the graphs.  All write into the padding block."""
        for num_tokens in {1, 2, min(self.block_size, max_tokens), min(max_tokens, self._loaded.max_context_len)}:
            table = [self._padding_block] * -(-num_tokens // self.block_size)
            for params in (GREEDY, DRAWN):
                check_drawn(self.run([_dry_row(num_tokens, 0, table, params)]))
        if self._has_graphs:
            self._capture_graphs(max_rows)
        self._foreseen = None

    def _capture_graphs(self, max_rows: int) -> None:
        capture = self._capture or CudaCapture()
        self.graphs = DecodeGraphs(self._forward, self._device, self.block_size, capture)
        with torch.inference_mode():
            self.graphs.capture_all(
                max_rows,
                self._loaded.max_context_len,
                self._choice.grows_with_room,
                lambda shape: self._prepare((), (), shape).host,
            )

    def close(self) -> None:
        """Free graphs and cache."""
        if self.graphs is not None:
            self.graphs.clear()
        self._caches, self._foreseen = (), None

    # --- a step ----------------------------------------------------------------------------------
    def run(self, rows: Sequence[Row]) -> StepResult:
        """Compute the rows, draw for those that sample.  While the device works the next step is prepared."""
        sampling = [row for row in rows if row.samples]
        with torch.inference_mode():
            logits = self._logits(rows)
            pending = self._sampler.launch(logits, sampling) if sampling else None
        self._foreseen = self._foresee(rows) if len(sampling) == len(rows) else None
        if pending is None:
            Arrival(self._device).wait()
            return StepResult({})
        sampled = pending.collect()
        return StepResult(sampled.tokens, sampled.errors)

    def logits(self, rows: Sequence[Row]) -> npt.NDArray[np.float32]:
        """``[rows that sample, vocab]``, without drawing."""
        with torch.inference_mode():
            array: npt.NDArray[np.float32] = self._logits(rows).float().cpu().numpy()
        return array

    def _logits(self, rows: Sequence[Row]) -> Tensor:
        """``[rows that sample, vocab]`` on the device, which may not have computed them yet."""
        foreseen, self._foreseen = self._foreseen, None
        if is_decode(rows) and len(rows) <= MAX_PASS_TOKENS:
            if foreseen is not None and foreseen.step.is_of(rows):
                self.num_foreseen += 1
            else:
                foreseen = self._prepared([row.sequence for row in rows], [row.start for row in rows])
            return self._replay(foreseen, rows)
        groups = split(rows, MAX_PASS_TOKENS)
        parts = [
            self._forward(HostStep.of(pack(group, self.block_size), self._device).to(self._device)) for group in groups
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _replay(self, prepared: _Prepared, rows: Sequence[Row]) -> Tensor:
        host = prepared.step.filled(rows)
        if prepared.room is None or self.graphs is None:
            return self._forward(host.to(self._device))
        return self.graphs.run(prepared.room, host)[: len(rows)]

    def _forward(self, batch: StepBatch) -> Tensor:
        return forward_logits(self._loaded.model, PagedStep(batch, self._caches, self._choice.kernel))

    # --- what comes next -------------------------------------------------------------------------
    def _foresee(self, rows: Sequence[Row]) -> _Prepared | None:
        """The step that follows if nobody comes and only those leave who have all their tokens."""
        staying = [row for row in rows if row.sequence.num_output_tokens + 1 < row.sequence.params.max_tokens]
        if not staying:
            return None
        return self._prepared([row.sequence for row in staying], [row.end for row in staying])

    def _prepared(self, sequences: Sequence[TokenSequence], positions: Sequence[int]) -> _Prepared:
        num_rows, longest = len(sequences), max(positions) + 1
        room = self.graphs.room_for(num_rows, longest) if self.graphs is not None else None
        if room is not None and self.graphs is not None:
            shape = self.graphs.shape(room)
        else:
            shape = StepShape(num_rows, num_rows, num_rows, -(-longest // self.block_size), 1, longest)
        return _Prepared(self._prepare(sequences, positions, shape), room)

    def _prepare(self, sequences: Sequence[TokenSequence], positions: Sequence[int], shape: StepShape) -> DecodeStep:
        return DecodeStep.prepare(sequences, positions, shape, self.block_size, self._padding_block, self._device)


def _dry_row(num_tokens: int, start: int, table: list[int], params: SamplingParams) -> Row:
    """The rest of a text of zeros from ``start`` on."""
    text = TokenSequence("dry", "dry", "dry", [0] * num_tokens, num_tokens, params, 0, frozenset(), block_ids=table)
    return Row(text, 0, start, num_tokens - start)
