"""The GPU's path on a CPU: everything but CUDA itself, with a graph's stand-in that reads the graph's own memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from everystep.errors import ConfigError
from everystep.runner.torch_paged import cuda_path
from everystep.runner.torch_paged.cuda_attention import choose_kernel
from everystep.runner.torch_paged.cuda_graphs import DecodeGraphs, Room, batch_sizes, context_rooms
from everystep.runner.torch_paged.cuda_memory import GIB, GpuMemory
from everystep.runner.torch_paged.cuda_needs import AttentionNeeds
from everystep.runner.torch_paged.device_foresight import DecodeStep
from everystep.runner.torch_paged.device_inputs import HostStep, StepShape
from everystep.runner.torch_paged.step_packing import pack
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence
from runner.device_bench import (
    FAMILIES,
    Case,
    PathRunner,
    greedy,
    make_runner,
    references,
    save_tiny,
    serve,
)

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")
POLICIES = ("static", "per_token", "continuous")
torch.set_num_threads(1)


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def cases(llama: Path) -> list[Case]:
    return references(llama, CPU, 16)


@pytest.fixture(scope="module")
def runner(llama: Path) -> PathRunner:
    return make_runner(llama, CPU)


# --- tokens --------------------------------------------------------------------------------------
def test_every_family_gives_the_tokens_of_its_own_generate(family: Path) -> None:
    runner, expected = make_runner(family, CPU, max_rows=4), references(family, CPU, 5)
    outputs, _, _ = serve(runner, "continuous", [case.prompt for case in expected], greedy())
    assert outputs == [list(case.output) for case in expected]
    assert runner.path.graphs is not None
    assert len(runner.path.graphs) > 3


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("num_prompts", [1, 4, 16])
def test_every_policy_gives_the_tokens_of_generate(
    runner: PathRunner, cases: list[Case], policy: str, num_prompts: int
) -> None:
    chosen = cases[:num_prompts]
    outputs, _, _ = serve(runner, policy, [case.prompt for case in chosen], greedy())
    assert outputs == [list(case.output) for case in chosen]


def test_graphs_and_single_kernels_give_the_same_tokens(llama: Path, runner: PathRunner, cases: list[Case]) -> None:
    plain = make_runner(llama, CPU, has_graphs=False)
    assert plain.path.graphs is None
    prompts = [case.prompt for case in cases]
    assert serve(plain, "continuous", prompts, greedy())[0] == serve(runner, "continuous", prompts, greedy())[0]


def test_preempted_texts_and_shared_beginnings_give_the_same_tokens(runner: PathRunner, cases: list[Case]) -> None:
    """17 blocks for texts of up to 5: the last in line lose theirs; then the same prompts again find their blocks."""
    prompts = [case.prompt for case in cases[:8]] * 2
    outputs, lane, _ = serve(runner, "continuous", prompts, greedy(), num_seats=8, num_blocks=17, budget=24)
    assert outputs == [list(case.output) for case in cases[:8]] * 2
    assert lane.num_preemptions > 0
    assert lane.num_prefix_hit_tokens > 0


def test_drawn_tokens_are_the_same_in_every_company(runner: PathRunner, cases: list[Case]) -> None:
    params = [
        SamplingParams(max_tokens=8, ignore_eos=True, temperature=t, top_p=p, top_k=k, frequency_penalty=f)
        for t, p, k, f in ((0.0, 1.0, 0, 0.5), (1.0, 0.7, 0, 0.0), (2.0, 1.0, 9, 0.0), (1.5, 0.9, 30, 1.0)) * 2
    ]
    prompts = [case.prompt for case in cases[:8]]
    wide, _, _ = serve(runner, "continuous", prompts, params, num_seats=8)
    narrow, _, _ = serve(runner, "per_token", prompts, params, num_seats=2)
    assert wide == narrow


def test_a_step_beyond_one_pass_is_computed_in_parts(
    monkeypatch: pytest.MonkeyPatch, runner: PathRunner, cases: list[Case]
) -> None:
    monkeypatch.setattr(cuda_path, "MAX_PASS_TOKENS", 16)
    outputs, _, steps = serve(runner, "static", [case.prompt for case in cases[:4]], greedy())
    assert steps[0].summary.num_new_tokens > 16
    assert outputs == [list(case.output) for case in cases[:4]]


# --- inputs prepared ahead -----------------------------------------------------------------------
def text(num_tokens: int, blocks: list[int], name: str = "t") -> Sequence:
    ids = [7 + i for i in range(num_tokens)]
    return Sequence(name, "r", "p", ids, num_tokens, greedy(), 0, frozenset(), block_ids=blocks)


def shape_of(num_rows: int, width: int, longest: int) -> StepShape:
    return StepShape(num_rows, num_rows, num_rows, width, 1, longest)


def foreseen(texts: list[Sequence], shape: StepShape) -> DecodeStep:
    """The step after one that reads the texts up to their ends."""
    return DecodeStep.prepare(texts, [one.num_tokens for one in texts], shape, 4, 99, CPU)


def test_what_was_foreseen_equals_what_is_packed_anew() -> None:
    """Lengths 3, 4 and 9 over blocks of 4: the second's next token needs a block that it gets only later."""
    texts = [text(3, [5]), text(4, [8]), text(9, [2, 7, 6])]
    step = foreseen(texts, shape_of(3, 3, 10))
    rows = [Row(one, seat, one.num_tokens, 1) for seat, one in enumerate(texts)]
    texts[1].block_ids += [11]
    for number, one in enumerate(texts):
        one.token_ids.append(100 + number)
    assert step.is_of(rows)
    filled, packed = step.filled(rows), HostStep.of(pack(rows, 4), CPU)
    assert filled.shape == packed.shape
    for name, array in packed.arrays.items():
        assert (filled.arrays[name] == array).all(), name


def test_padding_rows_write_and_see_one_token_of_a_block_that_nobody_owns() -> None:
    texts = [text(5, [3, 1])]
    step = foreseen(texts, shape_of(4, 6, 24))
    texts[0].token_ids.append(50)
    arrays = step.filled([Row(texts[0], 0, 5, 1)]).arrays
    assert arrays["slots"].tolist() == [1 * 4 + 1, 99 * 4, 99 * 4, 99 * 4]
    assert arrays["context_lens"].tolist() == [6, 1, 1, 1]
    assert arrays["block_table"][1:, 0].tolist() == [99, 99, 99]
    assert arrays["query_begins"].tolist() == [0, 1, 2, 3, 4]
    assert arrays["input_ids"].tolist() == [50, 0, 0, 0]


@pytest.mark.parametrize("change", ["other text", "other start", "longer", "moved blocks", "fewer", "more"])
def test_another_plan_than_foreseen_is_noticed(change: str) -> None:
    texts = [text(3, [5], "a"), text(6, [8, 2], "b")]
    step = foreseen(texts, shape_of(2, 2, 7))
    for one in texts:
        one.token_ids.append(1)
    rows = [Row(one, 0, one.num_tokens - 1, 1) for one in texts]
    assert step.is_of(rows)
    if change == "other text":
        rows[0] = Row(text(4, [5], "a"), 0, 3, 1)
    elif change == "other start":
        rows[1] = Row(texts[1], 0, 5, 1)
    elif change == "longer":
        rows[1] = Row(texts[1], 0, 6, 2)
    elif change == "moved blocks":
        texts[1].block_ids[0] = 3
    else:
        rows = rows[:1] if change == "fewer" else [*rows, rows[0]]
    assert not step.is_of(rows)


def test_while_nobody_comes_or_goes_every_decode_step_was_foreseen(llama: Path, cases: list[Case]) -> None:
    runner = make_runner(llama, CPU)
    before = runner.path.num_foreseen
    _, _, steps = serve(runner, "static", [case.prompt for case in cases[:4]], greedy(10))
    assert len(steps) == 10
    assert runner.path.num_foreseen - before == 9


# --- graphs --------------------------------------------------------------------------------------
def test_batch_sizes_are_dense_where_small_and_end_with_what_was_asked() -> None:
    assert batch_sizes(1) == [1]
    assert batch_sizes(6) == [1, 2, 4, 6]
    assert batch_sizes(33) == [1, 2, 4, 8, 16, 24, 32, 33]
    assert {64, 256, 1024} <= set(batch_sizes(1024))
    assert all(sizes == sorted(set(sizes)) for sizes in map(batch_sizes, range(1, 1100)))


def test_contexts_have_several_rooms_only_where_a_kernel_pays_for_room() -> None:
    assert context_rooms(2048, grows_with_room=True) == [128, 512, 2048]
    assert context_rooms(100, grows_with_room=True) == [100]
    assert context_rooms(2048, grows_with_room=False) == [2048]


def test_a_graph_with_room_is_found_and_none_beyond_the_largest(runner: PathRunner) -> None:
    graphs = runner.path.graphs
    assert graphs is not None
    assert graphs.room_for(3, 20) == Room(4, 128)
    assert graphs.room_for(64, 129) == Room(64, 256)
    assert graphs.room_for(65, 20) is None
    assert graphs.room_for(1, 257) is None


def test_a_model_that_cannot_be_captured_is_served_without_graphs(llama: Path, cases: list[Case]) -> None:
    runner = make_runner(llama, CPU, has_graphs=False)

    def refusing(compute: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    runner.path._has_graphs, runner.path._capture = True, refusing  # type: ignore[assignment]
    runner.warm_up(8, 16)
    assert runner.path.graphs is not None
    assert len(runner.path.graphs) == 0
    outputs, _, _ = serve(runner, "continuous", [cases[0].prompt], greedy())
    assert outputs == [list(cases[0].output)]


class NoLooking(TorchDispatchMode):
    """Refuses what reads a tensor's numbers on the host: a stream that is being captured can't wait."""

    LOOKS = (
        "_local_scalar_dense",
        "item",
        "nonzero",
        "masked_select",
        "equal",
        "is_nonzero",
        "unique",
        "repeat_interleave",
    )

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = str(function).split(".")[1]
        assert name not in self.LOOKS, f"a decode step calls {name}"
        if name == "index":
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "indexed by a mask"
        return function(*args, **(kwargs or {}))


def test_a_decode_step_of_any_family_looks_at_no_number(family: Path) -> None:
    path = make_runner(family, CPU, max_rows=4).path
    assert path.graphs is not None
    room = path.graphs.room_for(4, 20)
    assert room is not None
    nobody = path._prepare((), (), path.graphs.shape(room)).host
    with torch.inference_mode(), NoLooking():
        path.graphs.run(room, nobody)


def test_graphs_are_captured_from_the_largest_to_the_smallest() -> None:
    seen: list[int] = []

    def forward(batch: object) -> torch.Tensor:
        seen.append(len(batch.input_ids))  # type: ignore[attr-defined]
        return torch.zeros(1)

    graphs = DecodeGraphs(forward, CPU, 16, lambda compute: compute)
    graphs.capture_all(8, 64, False, lambda shape: DecodeStep.prepare((), (), shape, 16, 0, CPU).host)
    assert seen == sorted(seen, reverse=True)
    assert len(graphs) == 4


# --- kernels and memory --------------------------------------------------------------------------
def needs(dtype: torch.dtype = torch.float32) -> AttentionNeeds:
    return AttentionNeeds(dtype, 4, 2, 16, 16, frozenset({None, 5}), frozenset({None, 3.0}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_no_paged_kernel_passes_its_trial_plain_attention_serves(dtype: torch.dtype) -> None:
    """On a CPU each paged kernel raises or isn't installed."""
    assert choose_kernel(needs(dtype), CPU).kernel.name == "gathered"


def test_a_kernel_that_is_wrong_fails_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    from everystep.runner.torch_paged import cuda_attention
    from everystep.runner.torch_paged.cuda_gathered import GatheredAttention

    class OneTokenShort(GatheredAttention):
        name = "short"

        def attend(self, query, cache, batch, *, scale, window, softcap):  # type: ignore[no-untyped-def]
            return super().attend(query, cache, batch, scale=scale, window=window and window - 1, softcap=softcap)

    class Right(GatheredAttention):
        name = "right"

    kernels = [("short", lambda: KernelChoice(OneTokenShort())), ("right", lambda: KernelChoice(Right()))]
    from everystep.runner.torch_paged.cuda_attention import KernelChoice

    monkeypatch.setattr(cuda_attention, "_candidates", lambda needs, device: kernels)
    assert choose_kernel(needs(), CPU).kernel.name == "right"


def test_stale_numbers_beyond_a_context_never_show() -> None:
    """A block's earlier owner may have left NaN, which no mask takes away."""
    from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
    from everystep.runner.torch_paged.step_batch import LayerCache

    packed = pack([Row(text(6, [1, 2]), 0, 5, 1)], 4)
    cache = LayerCache(torch.full((4, 4, 2, 8), float("nan")), torch.full((4, 4, 2, 8), float("nan")))
    for part in (cache.keys, cache.values):
        part[1], part[2, :2], part[3] = 1.0, 1.0, 0.0  # the context of six, and the block that nobody owns
    query = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 4, 8)).astype(np.float32))
    mixed = GatheredAttention().attend(query, cache, packed.to(CPU), scale=1.0, window=None, softcap=None)
    assert torch.allclose(mixed, torch.ones_like(mixed))


def test_the_cache_gets_what_the_largest_step_leaves_of_the_allowed_share() -> None:
    memory = GpuMemory(total=100 * GIB, others=2 * GIB, peak=30 * GIB)
    assert memory.left_for_cache(0.9) == 58 * GIB
    with pytest.raises(ConfigError, match=r"gpu_memory_utilization=0\.3 of 100\.00 GiB .* 30\.00 GiB.* 2\.00 GiB"):
        memory.left_for_cache(0.3)


def test_a_path_without_a_gpu_leaves_the_size_of_the_cache_to_the_host(runner: PathRunner) -> None:
    assert runner.path.free_cache_bytes() is None


def test_the_largest_step_runs_over_a_cache_of_its_own(llama: Path) -> None:
    runner = make_runner(llama, CPU)
    runner.path._largest_step()
    assert runner.path._caches == ()
