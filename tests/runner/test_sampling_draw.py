"""What is drawn, and how often: against a sorted float64 reference, and at the extremes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from everystep.runner.sampling import Sampler
from everystep.sampling_params import SamplingParams
from runner.sampling_rows import draws, params, reference, row

VOCAB = 700  # no multiple of a block's width: three blocks, the last one padded
SAMPLER = Sampler(VOCAB)
SEVEN = Sampler(7)


def peaked() -> NDArray[np.float32]:
    """Logits like a language model's: a broad floor and a few dozen likely tokens all over the vocabulary."""
    rng = np.random.default_rng(1)
    logits = rng.standard_normal(VOCAB)
    logits[rng.choice(VOCAB, 40, replace=False)] += rng.uniform(2, 5, 40)
    return logits.astype(np.float32)


def flat() -> NDArray[np.float32]:
    return np.random.default_rng(2).normal(0, 0.2, VOCAB).astype(np.float32)


def tied() -> NDArray[np.float32]:
    """Few distinct values: every filter's border falls on a tie."""
    return np.random.default_rng(3).choice([0.0, 1.0, 2.5, 4.0], VOCAB, p=[0.7, 0.2, 0.09, 0.01]).astype(np.float32)


SHAPES = {"peaked": peaked(), "flat": flat(), "tied": tied()}
RECIPES = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"temperature": 1.7},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 0.3},
    {"temperature": 0.8, "top_k": 40},
    {"temperature": 1.0, "top_k": 300},
    {"temperature": 1.0, "min_p": 0.1},
    {"temperature": 1.2, "top_k": 60, "top_p": 0.85},
    {"temperature": 1.2, "min_p": 0.05, "top_p": 0.7},
    {"temperature": 1.1, "top_k": 50, "top_p": 0.9, "min_p": 0.02},
]


def chi_square_excess(tokens: list[int], expected: NDArray[np.float64]) -> float:
    """Standard deviations above the mean; tokens that are expected fewer than 8 times share a cell."""
    counts, means = np.bincount(tokens, minlength=len(expected)), expected * len(tokens)
    rare = means < 8
    cells = [*zip(counts[~rare], means[~rare], strict=True), (counts[rare].sum(), means[rare].sum())]
    terms = [(count - mean) ** 2 / mean for count, mean in cells if mean > 0]
    freedom = max(1, len(terms) - 1)
    return (sum(terms) - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", RECIPES, ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()))
def test_draws_have_the_distribution_of_a_sorted_reference(shape: str, options: dict[str, float]) -> None:
    recipe = params(**options)
    expected = reference(SHAPES[shape], recipe)
    tokens = draws(SAMPLER, SHAPES[shape], recipe, 8000)
    assert (expected[tokens] > 0).all()  # nothing outside the filters, ever
    assert chi_square_excess(tokens, expected) < 4.5


def test_the_chi_square_notices_a_distribution_that_is_slightly_wrong() -> None:
    recipe = params(temperature=1.0, top_p=0.9)
    tokens = draws(SAMPLER, SHAPES["peaked"], recipe, 8000)
    for wrong in (params(temperature=1.15, top_p=0.9), params(temperature=1.0, top_p=0.94)):
        assert chi_square_excess(tokens, reference(SHAPES["peaked"], wrong)) > 4.5


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-300])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    logits = SHAPES["peaked"]
    assert set(draws(SAMPLER, logits, params(temperature=temperature), 100)) == {int(logits.argmax())}


def test_the_highest_temperature_is_nearly_uniform() -> None:
    recipe = params(temperature=100.0)
    tokens = draws(SAMPLER, SHAPES["peaked"], recipe, 8000)
    assert chi_square_excess(tokens, reference(SHAPES["peaked"], recipe)) < 4.5
    assert len(set(tokens)) > 0.99 * VOCAB


@pytest.mark.parametrize("options", [{"top_p": 1e-6}, {"top_p": 5e-324}, {"top_k": 1}, {"min_p": 1.0}])
def test_the_tightest_filters_leave_only_the_likeliest_token(options: dict[str, float]) -> None:
    for logits in (SHAPES["peaked"], SHAPES["flat"]):
        tokens = draws(SAMPLER, logits, params(temperature=2.0, **options), 50)
        assert set(tokens) == {int(logits.argmax())}


@pytest.mark.parametrize("options", [{"top_p": 1e-6}, {"top_k": 1}, {"min_p": 1.0}])
def test_tokens_tied_at_the_top_share_the_draws(options: dict[str, float]) -> None:
    logits = SHAPES["flat"].copy()
    logits[[3, 300, 699]] = 5.0
    tokens = draws(SAMPLER, logits, params(temperature=1.0, **options), 3000)
    counts = np.bincount(tokens, minlength=VOCAB)[[3, 300, 699]]
    assert counts.sum() == 3000
    assert (abs(counts - 1000) < 5 * np.sqrt(3000 * 2 / 9)).all()


@pytest.mark.parametrize("options", [{"top_p": 1e-6}, {"top_k": 1}, {"min_p": 1.0}])
def test_a_border_at_a_logit_of_zero_keeps_it(options: dict[str, float]) -> None:
    """What is just below 0 is no normal number: a processor that takes it for 0 would lose the tie."""
    tokens = draws(SEVEN, np.array([-1, 0, -1, 0, -2, -np.inf, -1], np.float32), params(temperature=1.0, **options), 60)
    assert set(tokens) == {1, 3}


def test_the_nucleus_of_equal_logits_is_the_whole_vocabulary() -> None:
    """Nothing is strictly likelier than anything, so whatever top_p is, all of them are in."""
    tokens = draws(SAMPLER, np.full(VOCAB, -7.5, np.float32), params(temperature=1.0, top_p=0.01), 8000)
    assert len(set(tokens)) > 0.99 * VOCAB
    assert max(tokens) < VOCAB  # never a place of the padding


@pytest.mark.parametrize("options", [{"top_k": VOCAB}, {"top_k": 2**31 - 1}, {"top_p": 1.0}, {"min_p": 0.0}])
def test_a_filter_at_its_widest_changes_nothing(options: dict[str, float]) -> None:
    wide = draws(SAMPLER, SHAPES["peaked"], params(temperature=1.0, **options), 500)
    assert wide == draws(SAMPLER, SHAPES["peaked"], params(temperature=1.0), 500)


@settings(max_examples=100, deadline=None)
@given(
    logits=st.lists(st.sampled_from([-np.inf, -30.0, -2.0, -0.5, 0.0, 0.25, 1.0, 3.0, 60.0]), min_size=7, max_size=7),
    temperature=st.sampled_from([0.01, 0.5, 1.0, 3.0, 100.0]),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 9),
    min_p=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**64 - 1),
)
def test_no_token_outside_the_filters_is_ever_drawn(
    logits: list[float], temperature: float, top_p: float, top_k: int, min_p: float, seed: int
) -> None:
    if max(logits) == -np.inf:
        logits[seed % 7] = 0.0
    recipe = params(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    row_logits = np.array(logits, np.float32)
    # A border that falls within rounding of a token's mass may fall on either side.
    looser = params(temperature=temperature, top_p=min(1.0, top_p + 1e-5), top_k=top_k, min_p=max(0.0, min_p - 1e-5))
    allowed = np.flatnonzero(reference(row_logits, looser) > 0)
    tokens = draws(SEVEN, row_logits, recipe, 20, seed)
    assert set(tokens) <= set(allowed.tolist())


def test_a_vocabulary_of_one_token_is_no_special_case() -> None:
    result = Sampler(1).sample(np.zeros((1, 1), np.float32), [row(params(temperature=1.0, top_p=0.5, top_k=3))])
    assert result.tokens["s"].token_id == 0


def test_draws_over_positions_of_one_sequence_have_the_distribution_too() -> None:
    recipe = params(temperature=1.0, top_p=0.9)
    rows = [row(recipe, name=str(n), seed=2**64 - 1, prompt=[1] * n) for n in range(1, 3001)]
    tokens: list[int] = []
    for start in range(0, 3000, 250):
        part = rows[start : start + 250]
        result = SAMPLER.sample(np.tile(SHAPES["peaked"], (len(part), 1)), part)
        tokens += [result.tokens[r.sequence.sequence_id].token_id for r in part]
    assert chi_square_excess(tokens, reference(SHAPES["peaked"], recipe)) < 4.5


def test_a_real_vocabulary_width_agrees_with_the_reference() -> None:
    logits = np.random.default_rng(4).normal(0, 2.5, 49_152).astype(np.float32)
    recipe = SamplingParams(temperature=0.3, top_k=30, top_p=0.95)
    expected = np.zeros(49_152)
    order = np.argsort(-logits)[:30]
    expected[order] = reference(logits[order], recipe)
    tokens = draws(Sampler(49_152), logits, recipe, 4000)
    assert (expected[tokens] > 0).all()
    assert chi_square_excess(tokens, expected) < 4.5
