"""The torch runner on a GPU: skipped where there is none.  ``benchmarks/gpu.sh`` runs this file there."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from everystep.errors import ConfigError
from everystep.runner.torch_paged import TorchRunner
from everystep.runner.torch_paged.cuda_attention import TOLERANCE, choose_kernel
from everystep.runner.torch_paged.cuda_gathered import GatheredAttention
from everystep.runner.torch_paged.cuda_needs import AttentionNeeds, NotingKernel, needs_of
from everystep.runner.torch_paged.cuda_trial import worst_difference
from everystep.runner.torch_paged.cuda_triton import TritonAttention
from everystep.runner.torch_paged.device_sampling import DeviceSampler
from everystep.runner.torch_paged.loading import load
from everystep.runner.torch_paged.placement import Placement
from everystep.sampling_params import SamplingParams
from everystep.types import Row, Sequence
from runner.device_bench import (
    FAMILIES,
    Case,
    PathRunner,
    greedy,
    last_logits,
    make_runner,
    references,
    save_tiny,
    serve,
)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")]

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
POLICIES = ("static", "per_token", "continuous")
PAGED_KERNELS = ("varlen", "flashinfer", "triton")
MAX_OFF = 0.06  # root mean square of bf16 logits' difference, by their spread: twice what bf16 alone does


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def cases(llama: Path) -> list[Case]:
    return references(llama, CUDA, 64)


@pytest.fixture(scope="module")
def runner(llama: Path) -> PathRunner:
    return make_runner(llama, CUDA)


# --- f32 against transformers --------------------------------------------------------------------
def test_every_family_gives_the_tokens_of_generate_on_this_gpu_and_through_graphs(family: Path) -> None:
    runner, expected = make_runner(family, CUDA, max_rows=8), references(family, CUDA, 8)
    outputs, _, _ = serve(runner, "continuous", [case.prompt for case in expected], greedy(), num_seats=8)
    assert outputs == [list(case.output) for case in expected]
    assert runner.path.graphs is not None
    assert len(runner.path.graphs) > 3, "the model wasn't captured"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("num_prompts", [1, 4, 16, 64])
def test_every_policy_gives_the_tokens_of_generate(
    runner: PathRunner, cases: list[Case], policy: str, num_prompts: int
) -> None:
    chosen = cases[:num_prompts]
    seats = 64 if policy == "continuous" else 4
    outputs, _, _ = serve(runner, policy, [case.prompt for case in chosen], greedy(), num_seats=seats, budget=96)
    assert outputs == [list(case.output) for case in chosen]


def test_graphs_and_single_kernels_give_the_same_tokens(llama: Path, runner: PathRunner, cases: list[Case]) -> None:
    plain = make_runner(llama, CUDA, has_graphs=False)
    prompts = [case.prompt for case in cases]
    one_by_one = serve(plain, "continuous", prompts, greedy(), num_seats=16)[0]
    assert one_by_one == serve(runner, "continuous", prompts, greedy(), num_seats=16)[0]


def test_chunked_preempted_and_shared_texts_give_the_same_tokens(runner: PathRunner, cases: list[Case]) -> None:
    prompts = [case.prompt for case in cases[:8]] * 2
    outputs, lane, _ = serve(runner, "continuous", prompts, greedy(), num_seats=8, num_blocks=17, budget=24)
    assert outputs == [list(case.output) for case in cases[:8]] * 2
    assert lane.num_preemptions > 0
    assert lane.num_prefix_hit_tokens > 0


def test_while_nobody_comes_or_goes_every_decode_step_was_foreseen(runner: PathRunner, cases: list[Case]) -> None:
    before = runner.path.num_foreseen
    serve(runner, "static", [case.prompt for case in cases[:4]], greedy(10))
    assert runner.path.num_foreseen - before == 9


# --- kernels in half precision -------------------------------------------------------------------
def needs_of_model(folder: Path) -> AttentionNeeds:
    noting = NotingKernel(GatheredAttention())
    load(folder, Placement(CUDA, "bf16"), noting)
    return needs_of(noting.calls, torch.bfloat16)


@pytest.mark.parametrize("name", PAGED_KERNELS)
def test_a_paged_kernel_says_what_plain_attention_says(family: Path, name: str) -> None:
    choice = choose_kernel(needs_of_model(family), CUDA, frozenset({name}))
    if choice.kernel.name != name:
        pytest.skip(f"{name} isn't offered here for this model")
    paged = make_runner(family, CUDA, precision="bf16", choice=choice, max_rows=4)
    plain = make_runner(family, CUDA, precision="bf16", max_rows=4)
    prompt = [3 + (i * 37) % 150 for i in range(57)]
    for chunk in (57, 16, 1):
        found, expected = last_logits(paged, prompt, chunk), last_logits(plain, prompt, chunk)
        off = float((found - expected).square().mean().sqrt() / expected.std())
        assert off < MAX_OFF, f"{name} with chunks of {chunk}: {off:.3f}"


@pytest.mark.parametrize(
    ("dtype", "shape", "block_size"),
    [
        (torch.bfloat16, (12, 12, 64, 64), 16),
        (torch.bfloat16, (8, 2, 128, 128), 32),
        (torch.float16, (4, 1, 256, 256), 16),
        (torch.float32, (6, 2, 40, 24), 16),
    ],
)
def test_our_own_kernel_is_right_for_any_shape_and_block_size(
    dtype: torch.dtype, shape: tuple[int, int, int, int], block_size: int
) -> None:
    if not TritonAttention.is_offered():
        pytest.skip("Triton isn't installed")
    needs = AttentionNeeds(dtype, *shape, frozenset({None, 5}), frozenset({None, 3.0}))
    assert worst_difference(TritonAttention(), needs, block_size, CUDA) <= TOLERANCE[dtype]


def test_graphs_over_the_chosen_kernel_say_what_single_kernels_say(family: Path) -> None:
    """Tokens of bf16 may turn at a near tie: most must agree."""
    choice = choose_kernel(needs_of_model(family), CUDA)
    prompts = [[3 + (i * j) % 150 for i in range(5 + j)] for j in range(1, 9)]
    graphed = make_runner(family, CUDA, precision="bf16", choice=choice, max_rows=8)
    plain = make_runner(family, CUDA, precision="bf16", choice=choice, has_graphs=False, max_rows=8)
    found, expected = (serve(one, "continuous", prompts, greedy(6), num_seats=8)[0] for one in (graphed, plain))
    agreeing = sum(a == b for a, b in zip(chain(*found), chain(*expected), strict=True))
    assert agreeing >= 36, f"{agreeing} of 48"


# --- sampling ------------------------------------------------------------------------------------
def sampled_rows(count: int) -> list[Row]:
    recipes = [
        SamplingParams(),
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_p=0.9, logprobs=3),
        SamplingParams(temperature=1.3, top_k=50, top_p=0.5),
        SamplingParams(temperature=2.0, min_p=0.02, repetition_penalty=1.3, logit_bias={5: 4.0}),
        SamplingParams(logprobs=5, presence_penalty=1.0, frequency_penalty=0.5),
    ]
    rows = []
    for i in range(count):
        tokens = [1, 5, i % 7, *range(i % 11)]
        text = Sequence(str(i), "r", "p", tokens, 2, recipes[i % len(recipes)], i, frozenset({9}))
        rows.append(Row(text, i, len(tokens) - 1, 1))
    return rows


@pytest.mark.parametrize("vocab", [1300, 50_272])
def test_a_gpu_draws_what_a_cpu_draws(vocab: int) -> None:
    """Greedy rows to the token; drawn ones but where a number falls between two roundings of one sum."""
    count = 1200
    logits = torch.randn(count, vocab, generator=torch.Generator().manual_seed(4)) * 3
    rows = sampled_rows(count)
    gpu = DeviceSampler(vocab, CUDA).sample(logits.to(CUDA), rows)
    cpu = DeviceSampler(vocab, CPU).sample(logits, rows)
    assert not gpu.errors
    assert not cpu.errors
    differing = [name for name in cpu.tokens if cpu.tokens[name].token_id != gpu.tokens[name].token_id]
    assert all(not rows[int(name)].sequence.params.is_greedy for name in differing)
    assert len(differing) <= count // 200
    for name in set(cpu.tokens) - set(differing):
        found, expected = gpu.tokens[name], cpu.tokens[name]
        assert [top.token_id for top in found.top] == [top.token_id for top in expected.top]
        if expected.logprob is not None:
            assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)


def test_rows_without_finite_logits_fail_alone_on_a_gpu() -> None:
    rows = sampled_rows(12)
    logits = torch.randn(12, 500, generator=torch.Generator().manual_seed(1))
    logits[2, 7], logits[4, 3], logits[5] = float("nan"), float("inf"), float("-inf")
    result = DeviceSampler(500, CUDA).sample(logits.to(CUDA), rows)
    assert set(result.errors) == {"2", "4", "5"}
    assert len(result.tokens) == 9


# --- the runner as the engine sees it ------------------------------------------------------------
def test_a_runner_on_a_gpu_takes_bf16_measures_its_memory_and_serves(llama: Path, cases: list[Case]) -> None:
    runner = TorchRunner(llama, device="cuda", gpu_memory_utilization=0.5)
    assert runner.precision == "bf16"
    free = runner.free_cache_bytes()
    total = torch.cuda.get_device_properties(CUDA).total_memory
    assert free is not None
    assert 0.05 * total < free < 0.5 * total
    runner.allocate(min(free // runner.kv_block_bytes, 2000))
    runner.warm_up(8, 64)
    outputs, _, _ = serve(runner, "continuous", [case.prompt for case in cases[:8]], greedy(), num_seats=8)
    assert [len(output) for output in outputs] == [12] * 8
    runner.close()


def test_a_share_of_memory_that_holds_nothing_is_refused_with_the_numbers(llama: Path) -> None:
    runner = TorchRunner(llama, device="cuda", gpu_memory_utilization=0.0001)
    with pytest.raises(ConfigError, match=r"gpu_memory_utilization=0\.0001 of .* GiB leaves nothing"):
        runner.free_cache_bytes()
