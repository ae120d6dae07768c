"""The runner around the graph: invariance to the bit, rows that fail alone, precisions, memory, warm and cold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from everystep.architecture import Checkpoint
from everystep.checkpoint import open_checkpoint
from everystep.errors import ConfigError
from everystep.runner.openvino_runner import OpenVINORunner
from everystep.types import StepPlan
from runner.plan_by_hand import NUM_BLOCKS, TINY, Desk, golden_cases, tiny_runner

Float32 = npt.NDArray[np.float32]
POISON = 77  # a token id
PROMPT_LENS = (1, 2, 31, 33, 64, 65, 129, 200)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def exact(cache_dir: Path) -> Iterator[OpenVINORunner]:
    runner = tiny_runner("llama", cache_dir)
    yield runner
    runner.close()


@pytest.fixture(scope="module", params=["f32", "int8", "bf16"])
def invariant(request: pytest.FixtureRequest, cache_dir: Path) -> Iterator[OpenVINORunner]:
    runner = tiny_runner("llama", cache_dir, precision=request.param, deterministic=True)
    yield runner
    runner.close()


def prompts_of(lens: tuple[int, ...]) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(3, 384, n).tolist() for n in lens]


# --- invariance ----------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk", [1, 3, 16, 64, 100])
def test_logits_are_the_same_to_the_bit_however_a_prompt_is_cut(invariant: OpenVINORunner, chunk: int) -> None:
    for prompt in prompts_of(PROMPT_LENS):
        whole = Desk(invariant).logits(prompt, len(prompt))
        assert np.array_equal(Desk(invariant).logits(prompt, chunk), whole), len(prompt)


@pytest.mark.parametrize("width", [2, 3, 9, 64, 70])
def test_logits_are_the_same_to_the_bit_in_any_company(invariant: OpenVINORunner, width: int) -> None:
    desk = Desk(invariant)
    prompt = prompts_of((70,))[0]
    alone = desk.logits(prompt, 69)
    sequence = desk.sequence(prompt[:-1])
    desk.step((sequence, 69))
    sequence.token_ids = list(prompt)
    others = [desk.sequence(other[:5], max_tokens=1) for other in prompts_of((5,) * (width - 1))]
    rows = [(other, 2) for other in others]
    rows.insert(width // 2, (sequence, 1))
    logits = invariant.logits(desk.plan(rows))  # the others stop short of their last token, so one row samples
    assert np.array_equal(logits[0], alone)


def test_a_wide_step_gives_each_row_its_own_logits(exact: OpenVINORunner) -> None:
    """More tokens than one invariant pass takes: the logits of several passes come in the rows' order."""
    desk, prompts = Desk(exact), prompts_of((40, 3, 70, 1, 64, 9))
    expected = [desk.logits(prompt, len(prompt)) for prompt in prompts]
    logits = exact.logits(desk.plan([(desk.sequence(prompt, 1), len(prompt)) for prompt in prompts]))
    assert np.array_equal(logits, expected)


def test_a_step_in_which_nobody_samples_gives_no_token(exact: OpenVINORunner) -> None:
    desk = Desk(exact)
    sequence = desk.sequence(prompts_of((100,))[0])
    assert desk.step((sequence, 70)).tokens == {}
    assert sequence.num_computed_tokens == 70


def test_the_rows_of_a_step_come_back_by_sequence_id(exact: OpenVINORunner) -> None:
    desk, cases = Desk(exact), golden_cases("llama")
    sequences = [desk.sequence(case["prompt_token_ids"]) for case in cases[:4]]
    result = desk.step(*((s, s.num_tokens) for s in reversed(sequences)))
    assert {s.sequence_id: result.tokens[s.sequence_id].token_id for s in sequences} == {
        s.sequence_id: case["output_token_ids"][0] for s, case in zip(sequences, cases, strict=False)
    }


# --- the static graph for a lone decoding row ------------------------------------------------------
def test_the_static_graph_agrees_with_the_dynamic_one_and_spares_the_cache_in_use(cache_dir: Path) -> None:
    """It is made while requests run: what they have in the cache must still be there, in every block."""
    prompt = prompts_of((70,))[0]
    dynamic, static = (tiny_runner("llama", cache_dir, precision="int8") for _ in range(2))
    expected = Desk(dynamic).logits(prompt, 69)
    static.warm_up(4, 16)
    desk = Desk(static)
    sequence = desk.sequence(prompt)
    sequence.block_ids = [0, 1, 2]
    desk.step((sequence, 69))
    static.wait_for_static_decode()
    assert static._static is not None
    logits = static.logits(desk.plan([(sequence, 1)]))
    np.testing.assert_allclose(logits[0], expected, atol=0.05 * np.abs(expected).max(), rtol=0)
    assert logits[0].argmax() == expected.argmax()
    for runner in (dynamic, static):
        runner.close()


def test_the_static_graph_takes_a_context_up_to_the_model_s_last_token(cache_dir: Path) -> None:
    dynamic, static = (tiny_runner("llama", cache_dir, precision="int8") for _ in range(2))
    static.warm_up(4, 16)
    static.wait_for_static_decode()
    prompt = prompts_of((512,))[0]
    expected, logits = (Desk(runner).logits(prompt, 511)[:] for runner in (dynamic, static))
    assert np.corrcoef(expected, logits)[0, 1] > 0.999
    for runner in (dynamic, static):
        runner.close()


def test_an_invariant_precision_has_no_second_graph(invariant: OpenVINORunner) -> None:
    invariant.warm_up(4, 16)
    invariant.wait_for_static_decode()
    assert invariant._static is None


# --- failure -------------------------------------------------------------------------------------
def test_a_row_whose_logits_are_not_finite_fails_alone(cache_dir: Path) -> None:
    runner = runner_of_changed_weights("llama", cache_dir, "f32", poison)
    desk, prompt = Desk(runner), golden_cases("llama")[3]["prompt_token_ids"]
    good, bad = desk.sequence(prompt), desk.sequence([5, POISON])
    assert POISON not in prompt
    result = desk.step((bad, 2), (good, len(prompt)))
    runner.close()
    assert list(result.errors) == [bad.sequence_id]
    assert result.tokens[good.sequence_id].token_id == golden_cases("llama")[3]["output_token_ids"][0]


def test_a_row_that_nobody_samples_may_not_be_finite(cache_dir: Path) -> None:
    runner = runner_of_changed_weights("llama", cache_dir, "f32", poison)
    desk = Desk(runner)
    assert desk.step((desk.sequence([POISON, 5, 6]), 2)).errors == {}
    runner.close()


# --- precisions ----------------------------------------------------------------------------------
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
def test_int8_keeps_weights_that_need_no_more_and_computes_with_them(family: str, cache_dir: Path) -> None:
    """Linear weights on a grid of 255 even steps lose nothing, so the logits are those of float32."""
    exact = runner_of_changed_weights(family, cache_dir, "f32", on_a_grid)
    quantised = runner_of_changed_weights(family, cache_dir, "int8", on_a_grid)
    for prompt in prompts_of((1, 40)):
        expected, logits = (Desk(r).logits(prompt, len(prompt)) for r in (exact, quantised))
        np.testing.assert_allclose(logits, expected, atol=1e-3, rtol=0)
    exact.close()
    quantised.close()


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("int8", 0.99), ("int4", 0.9)])
@pytest.mark.parametrize("family", ["llama", "opt"])
def test_a_quantised_model_still_thinks_the_same(precision: str, least: float, family: str, cache_dir: Path) -> None:
    exact, runner = tiny_runner(family, cache_dir), tiny_runner(family, cache_dir, precision=precision)
    for prompt in prompts_of((17, 100)):
        expected, logits = (Desk(r).logits(prompt, 16) for r in (exact, runner))
        assert np.corrcoef(expected, logits)[0, 1] > least
    exact.close()
    runner.close()


def test_a_precision_that_does_not_exist_is_refused_by_name(cache_dir: Path) -> None:
    with pytest.raises(ConfigError, match="'f8'"):
        tiny_runner("llama", cache_dir, precision="f8")


# --- sizes, warmth and memory --------------------------------------------------------------------
def test_a_block_takes_what_its_tensors_take(exact: OpenVINORunner) -> None:
    layers, heads, head_dim = 2, 2, 32
    assert exact.block_size == 32
    assert exact.kv_block_bytes == layers * 2 * heads * exact.block_size * head_dim * 4


def test_a_warm_start_reads_no_weights(cache_dir: Path, exact: OpenVINORunner) -> None:
    checkpoint = open_checkpoint(str(TINY / "llama"), cache_dir)
    sealed = replace(checkpoint, read_weights=lambda: SealedWeights(checkpoint))
    runner = OpenVINORunner(sealed, precision="f32", num_threads=2, cache_dir=cache_dir)
    runner.allocate(NUM_BLOCKS)
    prompt = golden_cases("llama")[4]["prompt_token_ids"]
    assert np.array_equal(Desk(runner).logits(prompt, 99), Desk(exact).logits(prompt, 99))
    runner.close()


def test_warming_up_leaves_no_trace_in_what_follows(cache_dir: Path) -> None:
    runner = tiny_runner("mistral", cache_dir)
    runner.warm_up(8, 32)
    case = golden_cases("mistral")[6]
    assert Desk(runner).generate([case["prompt_token_ids"]], 24, 99) == [case["output_token_ids"]]
    runner.close()


def test_a_cache_that_nobody_fills_takes_no_memory(cache_dir: Path) -> None:
    runner = tiny_runner("llama", cache_dir)
    before = resident_bytes()
    runner.allocate(4 * 2**30 // runner.kv_block_bytes)
    desk = Desk(runner)
    desk.step((desk.sequence([5, 6, 7]), 3))
    taken = resident_bytes() - before
    runner.close()
    assert taken < 2**28, taken


def test_an_empty_plan_is_not_a_step_of_this_runner(exact: OpenVINORunner) -> None:
    """Policies never hand one over; if a fault does, it isn't taken for a pass."""
    with pytest.raises((ValueError, IndexError)):
        exact.run(StepPlan("p"))


def test_rotary_norms_and_attention_are_fused(exact: OpenVINORunner) -> None:
    """The compiler recognises our nodes: without that a step takes twice as long and nothing else tells."""
    kinds = [op.get_rt_info()["layerType"].astype(str) for op in exact._compiled.get_runtime_model().get_ordered_ops()]
    assert kinds.count("RoPE") == 2 * 2
    assert kinds.count("RMS") == 2 * 2 + 1
    assert kinds.count("PagedAttention") == 2


# --- what the tests above are made of ------------------------------------------------------------
class SealedWeights:
    """Names without arrays."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._names = list(checkpoint.weights.names())

    def names(self) -> list[str]:
        return self._names

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def load(self, name: str) -> Float32:
        raise AssertionError(f"{name} was read")


class ChangedWeights(SealedWeights):
    """A checkpoint's weights, each passed through a function of its name and array."""

    def __init__(self, checkpoint: Checkpoint, change: Callable[[str, Float32], Float32]) -> None:
        super().__init__(checkpoint)
        self._inner, self._change = checkpoint.weights, change

    def load(self, name: str) -> Float32:
        return self._change(name, self._inner.load(name))


def runner_of_changed_weights(
    family: str, cache_dir: Path, precision: str, change: Callable[[str, Float32], Float32]
) -> OpenVINORunner:
    checkpoint = open_checkpoint(str(TINY / family), cache_dir)
    key = f"{change.__name__}-{family}".ljust(64, "0")
    changed = replace(checkpoint, read_weights=lambda: ChangedWeights(checkpoint, change), content_key=key)
    runner = OpenVINORunner(changed, precision=precision, deterministic=True, num_threads=2, cache_dir=cache_dir)
    runner.allocate(NUM_BLOCKS)
    return runner


def poison(name: str, array: Float32) -> Float32:
    """An embedding that is not a number, of one token."""
    if name == "model.embed_tokens.weight":
        array[POISON] = np.nan
    return array


def on_a_grid(name: str, array: Float32) -> Float32:
    """Each output's weights at the nearest of 255 even steps between plus and minus their largest magnitude."""
    if array.ndim != 2 or "embed" in name:
        return array
    rows = []
    for row in array.astype(np.float64):
        step = np.abs(row).max() / 127
        rows.append(np.round(row / step) * step)
    return np.array(rows, np.float32)


def resident_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) * 1024
