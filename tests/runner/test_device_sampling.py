"""The device's sampler on CPU tensors, held against the NumPy one and against a sorted float64 reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from everystep.runner.sampling import SampledRows, Sampler  # noqa: E402
from everystep.runner.torch_paged import device_sampling  # noqa: E402
from everystep.runner.torch_paged.device_sampling import DeviceSampler  # noqa: E402
from everystep.sampling_params import SamplingParams  # noqa: E402
from everystep.types import Row  # noqa: E402
from runner.sampling_rows import params, reference, row  # noqa: E402

pytestmark = pytest.mark.torch

VOCAB = 700  # no multiple of a block's width
CPU = torch.device("cpu")
HOST, DEVICE = Sampler(VOCAB), DeviceSampler(VOCAB, CPU)
NUM_ROWS = 6

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 1e-6, 0.3, 1.0, 2.0, 100.0]),
        "top_p": st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.999, 1.0]),
        "top_k": st.sampled_from([0, 1, 2, 40, 699, 700, 10_000]),
        "min_p": st.sampled_from([0.0, 0.01, 0.5, 1.0]),
        "repetition_penalty": st.sampled_from([0.5, 1.0, 1.3]),
        "presence_penalty": st.sampled_from([-2.0, 0.0, 0.7]),
        "frequency_penalty": st.sampled_from([-1.0, 0.0, 0.4]),
        "logit_bias": st.dictionaries(
            st.integers(0, VOCAB + 5), st.sampled_from([-100.0, -1.5, 3.0, 100.0]), max_size=4
        ),
        "min_tokens": st.sampled_from([0, 2, 50]),
        "stop_token_ids": st.sampled_from([(), (3, 5), (VOCAB + 1,)]),
        "logprobs": st.sampled_from([None, 0, 1, 5, 20]),
    },
)
ROWS = st.lists(
    st.tuples(OPTIONS, st.integers(0, 2**64 - 1), st.lists(st.integers(0, VOCAB + 2), max_size=8)),
    min_size=1,
    max_size=NUM_ROWS,
)


def some_logits(num_rows: int, seed: int = 0, vocab: int = VOCAB) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((num_rows, vocab)) * rng.choice([0.1, 1.0, 4.0], (num_rows, 1))).astype(np.float32)


def on_device(sampler: DeviceSampler, logits: NDArray[np.float32], rows: list[Row]) -> SampledRows:
    return sampler.sample(torch.from_numpy(logits.copy()), rows)


def assert_alike(device: SampledRows, host: SampledRows) -> None:
    """Equal tokens and errors; logprobs to the rounding of float32 exponentials."""
    assert device.errors == host.errors
    assert {name: token.token_id for name, token in device.tokens.items()} == {
        name: token.token_id for name, token in host.tokens.items()
    }
    for name, expected in host.tokens.items():
        found = device.tokens[name]
        assert (found.logprob is None) == (expected.logprob is None)
        if expected.logprob is not None:
            assert found.logprob == pytest.approx(expected.logprob, abs=2e-5)
        assert [top.token_id for top in found.top] == [top.token_id for top in expected.top]
        assert [top.logprob for top in found.top] == pytest.approx([top.logprob for top in expected.top], abs=2e-5)


@given(ROWS, st.integers(0, 10_000))
@settings(max_examples=150, deadline=None)
def test_a_device_draws_what_the_host_draws_with_any_parameters(
    cases: list[tuple[dict[str, object], int, list[int]]], seed: int
) -> None:
    rows = []
    for i, (options, row_seed, output) in enumerate(cases):
        rows.append(row(params(**options), name=str(i), seed=row_seed, prompt=[1, 2, 2], output=output, eos=[7]))
    logits = some_logits(len(rows), seed)
    assert_alike(on_device(DEVICE, logits, rows), HOST.sample(logits.copy(), rows))


@pytest.mark.parametrize("vocab", [7, 256, 1280, 1300])
def test_vocabularies_of_any_size_are_drawn_from_alike(vocab: int) -> None:
    logits = some_logits(40, 3, vocab)
    rows = [row(params(temperature=1.3, top_p=0.8, logprobs=4), name=str(i), seed=i) for i in range(40)]
    assert_alike(on_device(DeviceSampler(vocab, CPU), logits, rows), Sampler(vocab).sample(logits.copy(), rows))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_without_finite_logits_fails_alone_as_on_the_host(temperature: float, value: float) -> None:
    logits = some_logits(5)
    if value == -np.inf:
        logits[2] = value
    else:
        logits[2, [90, 600]] = value
    rows = [row(params(temperature=temperature, top_p=0.9, logprobs=2), name=str(i), seed=i) for i in range(5)]
    device = on_device(DEVICE, logits, rows)
    assert set(device.errors) == {"2"}
    assert_alike(device, HOST.sample(logits.copy(), rows))


def test_greedy_takes_the_lowest_id_among_equals_and_lists_equals_by_id() -> None:
    logits = some_logits(1)
    logits[0, [680, 40, 333]] = 50.0
    logits[0, [600, 12]] = [0.0, -0.0]  # equal, though their bits differ
    logits[0, logits[0] < 0] = -9.0
    rows = [row(params(logprobs=20), name="s")]
    token = on_device(DEVICE, logits, rows).tokens["s"]
    assert token.token_id == 40
    assert [top.token_id for top in token.top[:3]] == [40, 333, 680]
    assert_alike(on_device(DEVICE, logits, rows), HOST.sample(logits.copy(), rows))


def test_logits_stay_as_they_were() -> None:
    logits = torch.from_numpy(some_logits(3))
    before = logits.clone()
    every = params(temperature=1.0, logit_bias={1: 5.0}, min_tokens=4, repetition_penalty=1.5, top_k=3)
    DEVICE.sample(logits, [row(every, name=str(i), eos=[9]) for i in range(3)])
    assert torch.equal(logits, before)


def test_a_batch_beyond_one_chunk_is_drawn_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = some_logits(30)
    rows = [row(params(temperature=float(i % 3), top_p=0.7), name=str(i), seed=i) for i in range(30)]
    whole = on_device(DEVICE, logits, rows)
    monkeypatch.setattr(device_sampling, "MAX_CHUNK_ELEMENTS", 4 * VOCAB)
    assert on_device(DEVICE, logits, rows) == whole


def test_rows_that_the_first_attempts_leave_open_are_drawn_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt without a look: of 60 rows with a small nucleus nearly all need more."""
    logits = np.tile(some_logits(1, 4), (60, 1))
    rows = [row(params(temperature=2.0, top_p=0.05, logprobs=1), name=str(i), seed=i) for i in range(60)]
    whole = on_device(DEVICE, logits, rows)
    monkeypatch.setattr(device_sampling, "MAX_BLIND_ATTEMPTS", 1)
    num_looks = []
    draw_more = device_sampling._chances
    monkeypatch.setattr(device_sampling, "_chances", lambda *args: num_looks.append(args[1]) or draw_more(*args))
    assert on_device(DEVICE, logits, rows) == whole
    assert len(num_looks) > 1


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.6},
        {"temperature": 1.5, "min_p": 0.2, "top_p": 0.8},
    ],
    ids=str,
)
def test_tokens_come_as_often_as_a_sorted_reference_says(options: dict[str, float]) -> None:
    logits = np.random.default_rng(8).standard_normal(24).astype(np.float32)
    logits[[3, 9]] = 1.25  # a tie
    recipe: SamplingParams = params(**options)
    count = 20_000
    rows = [row(recipe, name=str(i), seed=i) for i in range(count)]
    sampled = on_device(DeviceSampler(24, CPU), np.tile(logits, (count, 1)), rows)
    counts = np.bincount([token.token_id for token in sampled.tokens.values()], minlength=24)
    expected = reference(logits, recipe)
    assert (counts[expected == 0] == 0).all()
    deviation = np.sqrt(count * expected * (1 - expected))
    assert (np.abs(counts - count * expected) <= 5 * deviation + 1e-9).all()


def test_neighbours_do_not_change_a_draw() -> None:
    logits = some_logits(20, 6)
    rows = [row(params(temperature=1.0, top_p=0.9, top_k=i), name=str(i), seed=i) for i in range(20)]
    together = on_device(DEVICE, logits, rows).tokens
    for i in (0, 7, 19):
        alone = on_device(DEVICE, logits[i : i + 1], rows[i : i + 1]).tokens
        assert alone[str(i)] == together[str(i)]
