"""The CPU runner: a paged graph compiled by OpenVINO, run one step at a time.

Owns the compiled graphs, the KV cache's tensors and the packing of a plan into inputs.  Ignorant of why these rows run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from everystep.architecture import Checkpoint
from everystep.runner.built_weights import built_weights
from everystep.runner.finite import check_finite
from everystep.runner.graph_parts import PINNED_VERSION, check_library
from everystep.runner.graphs import build_graph
from everystep.runner.kv_cache import KvCache
from everystep.runner.openvino_core import openvino_core
from everystep.runner.precision import Precision, resolve_precision
from everystep.runner.sampling import Sampler
from everystep.runner.static_decode import StaticDecode
from everystep.runner.step_inputs import StepInputs, pack, pack_invariant, split
from everystep.runner.threads import cpu_features, usable_cpus
from everystep.types import Row, StepPlan, StepResult

logger = logging.getLogger(__name__)

WARM_ROWS = 4
RUNS_BEFORE_STATIC = 8  # the first tokens of a server's life come before its static graph
WARM_PREFILL_TOKENS = 16
STATIC_PATH = "static"  # what a step's result calls the static graph


class OpenVINORunner:
    """Implements :class:`everystep.types.Runner`.

    Compiles when made; :class:`UnsupportedOption` for a precision that this CPU or build doesn't do,
    :class:`EngineUnavailable` for another OpenVINO than the pinned one.
    """

    name = "openvino"
    is_repeatable = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        precision: str = "auto",
        deterministic: bool = False,
        num_threads: int | None = None,
        cache_dir: Path,
    ) -> None:
        check_library()
        self.plan_precision = resolve_precision(precision, deterministic=deterministic, cpu=cpu_features())
        self.precision = self.plan_precision.name
        self.num_threads = num_threads or usable_cpus()
        self.vocab_size = checkpoint.architecture.vocab_size
        self.max_context_len = checkpoint.architecture.max_context_len
        self._weights = built_weights(checkpoint, self.plan_precision, cache_dir, f"ov{PINNED_VERSION}")
        self._architecture = checkpoint.architecture
        self._compiled = self._compile(build_graph(self._architecture, self._weights))
        self._weights.release_pages()
        self._request = self._compiled.create_infer_request()
        self._sampler = Sampler(self.vocab_size, self.num_threads)
        self._cache = KvCache(self._compiled)
        self.block_size, self.kv_block_bytes = self._cache.block_size, self._cache.block_bytes
        self._inputs: StepInputs | None = None  # kept alive through the pass that reads them
        self._static: StaticDecode | None = None
        self._static_maker: threading.Thread | None = None
        self._num_runs = 0
        self._forced_path: str | None = None

    def allocate(self, num_blocks: int) -> None:
        """Make the KV cache."""
        self._cache.allocate(num_blocks)
        for name, tensor in self._cache.tensors.items():
            self._request.set_tensor(name, tensor)

    # --- a step ----------------------------------------------------------------------------------
    def run(self, plan: StepPlan) -> StepResult:
        """Compute the plan's rows: write their KV, draw a token for each row that samples."""
        sampling = [row for row in plan.rows if row.samples]
        static = self._static_for(plan.rows)
        logits = self._logits(plan.rows, static)
        path = "" if static is None else STATIC_PATH
        if not sampling:
            return StepResult({}, path=path)
        sampled = self._sampler.sample(logits, sampling)
        self._num_runs += 1
        if self._num_runs == RUNS_BEFORE_STATIC:
            self._start_static()
        return StepResult(sampled.tokens, sampled.errors, path=path)

    def force_path(self, path: str) -> None:
        """From now on take this way through every pass that has it, as a recorded step did.

        When the static graph comes depends on the clock, and its sums round differently.
        """
        if path == STATIC_PATH:
            self.wait_for_static_decode()
        self._forced_path = path

    def logits(self, plan: StepPlan) -> npt.NDArray[np.float32]:
        """As :meth:`run`, without drawing: a copy of the logits ``[rows that sample, vocab]``.  For measurements."""
        return self._logits(plan.rows, self._static_for(plan.rows)).copy()

    def _static_for(self, rows: Sequence[Row]) -> StaticDecode | None:
        """The static graph, if it is there and made for these rows."""
        is_lone_token = len(rows) == 1 and rows[0].num_new_tokens == 1
        return self._static if is_lone_token and self._forced_path in (None, STATIC_PATH) else None

    def _logits(self, rows: Sequence[Row], static: StaticDecode | None) -> npt.NDArray[np.float32]:
        """Logits ``[rows that sample, vocab]``; no copy where one pass gives them, so they live until the next."""
        if static is not None:
            return static.run(rows[0])
        invariance = self.plan_precision.invariance
        if invariance is None:
            return self._infer(pack(rows, self.block_size))
        groups = list(split(rows, invariance.max_tokens))
        parts = []
        for group in groups:
            num_sampling = sum(row.samples for row in group)
            logits = self._infer(pack_invariant(group, self.block_size, invariance.min_tokens))[:num_sampling]
            parts.append(logits if group is groups[-1] else logits.copy())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _infer(self, inputs: StepInputs) -> npt.NDArray[np.float32]:
        self._inputs = inputs
        for name, array in inputs.named():
            self._request.set_tensor(name, ov.Tensor(array, shared_memory=True))
        self._request.infer()
        logits: npt.NDArray[np.float32] = self._request.get_output_tensor(0).data
        return logits

    # --- warm and cold ---------------------------------------------------------------------------
    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Run one row, a small batch and a short prompt, so that no client pays for a first time.

        Raises :class:`ModelError` for a model that gives no finite logits.

        A wide batch isn't run: its first pass takes no longer than the next.  The static graph for a lone decoding row
        is compiled once the first tokens are out: before, or beside them, it would hold them up.
        """
        for lengths in ([1], [1] * min(WARM_ROWS, max_rows), [min(WARM_PREFILL_TOKENS, max_tokens)]):
            check_finite(self._infer(_dry_inputs(lengths)))
        self._weights.release_pages()  # the compiler repacks some weights in the first pass only

    def wait_for_static_decode(self) -> None:
        """Have the static graph, if the precision has one.  For measurements, which must know what they measure."""
        self._start_static()
        if self._static_maker is not None:
            self._static_maker.join()

    def close(self) -> None:
        """Free the graphs and the cache."""
        if self._static_maker is not None:
            self._static_maker.join()
        self._sampler.close()
        self._static = None
        self._cache.clear()

    def _start_static(self) -> None:
        if self.plan_precision.has_static_decode and self._static_maker is None:
            # No daemon: a library must not be torn down while a thread compiles in it.
            self._static_maker = threading.Thread(target=self._make_static, name="everystep-static")
            self._static_maker.start()

    def _make_static(self) -> None:
        """Swapped in when whole; if it fails the dynamic graph serves on."""
        try:
            model = build_graph(self._architecture, self._weights)
            max_blocks = -(-self.max_context_len // self.block_size)
            self._static = StaticDecode(model, self._compile, self._cache.tensors, self.block_size, max_blocks)
            self._weights.release_pages()
        except Exception:
            logger.exception("the static decode graph can't be made; the dynamic one serves alone")

    def _compile(self, model: ov.Model) -> ov.CompiledModel:
        return openvino_core().compile_model(model, "CPU", compile_properties(self.plan_precision, self.num_threads))


def compile_properties(precision: Precision, num_threads: int) -> dict[str, Any]:
    """OpenVINO's settings for a precision."""
    return {
        "INFERENCE_NUM_THREADS": num_threads,
        "INFERENCE_PRECISION_HINT": precision.arithmetic,
        "KV_CACHE_PRECISION": precision.kv_cache,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": precision.dynamic_group,
        "ENABLE_CPU_PINNING": False,
    }


def _dry_inputs(lengths: Sequence[int]) -> StepInputs:
    """Rows of zeros that write into the first block, which nobody owns yet."""
    total = sum(lengths)
    begins = np.cumsum([0, *lengths], dtype=np.int32)
    num_rows = len(lengths)
    return StepInputs(
        input_ids=np.zeros(total, np.int64),
        position_ids=np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]),
        past_lens=np.zeros(num_rows, np.int32),
        subsequence_begins=begins,
        block_indices=np.zeros(num_rows, np.int32),
        block_indices_begins=np.arange(num_rows + 1, dtype=np.int32),
        max_context_len=np.array(max(lengths), np.int32),
        sample_idx=(begins[1:] - 1).astype(np.int64),
    )
