"""Reported log-probabilities, against a float64 log-softmax of the model's own logits."""

import numpy as np
import pytest
from numpy.typing import NDArray

from everystep.runner.sampling import Sampler
from runner.sampling_rows import params, row

VOCAB = 700
SAMPLER = Sampler(VOCAB)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    exact = logits.astype(np.float64)
    return exact - exact.max() - np.log(np.exp(exact - exact.max()).sum())


def some_logits(num_rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(0, 3, (num_rows, VOCAB)).astype(np.float32)


@pytest.mark.parametrize("num_top", [0, 1, 5, 20])
def test_the_drawn_token_and_the_likeliest_are_reported(num_top: int) -> None:
    logits = some_logits(4)
    rows = [row(params(temperature=1.5, logprobs=num_top), name=str(i), seed=i) for i in range(4)]
    result = SAMPLER.sample(logits, rows)
    for i in range(4):
        exact = log_softmax(logits[i])
        token = result.tokens[str(i)]
        assert token.logprob == pytest.approx(exact[token.token_id], abs=2e-6)
        best = np.argsort(-exact, kind="stable")[:num_top]
        assert [top.token_id for top in token.top] == best.tolist()
        assert [top.logprob for top in token.top] == pytest.approx(exact[best].tolist(), abs=2e-6)


def test_logprobs_are_of_the_model_whatever_the_request_does_to_the_logits() -> None:
    logits = some_logits(2)
    best = int(logits[0].argmax())
    options = params(
        temperature=0.2, top_k=3, logit_bias={best: -100.0, 7: 100.0}, presence_penalty=2.0, min_tokens=3, logprobs=2
    )
    token = SAMPLER.sample(logits[:1], [row(options, prompt=[7], output=[7], eos=[best])]).tokens["s"]
    assert token.token_id == 7
    assert token.logprob == pytest.approx(log_softmax(logits[0])[7], abs=2e-6)
    assert token.top[0].token_id == best


def test_only_rows_that_ask_get_logprobs_and_only_as_many_as_they_ask_for() -> None:
    wishes: list[int | None] = [None, 3, 0, None, 1]
    rows = [row(params(logprobs=wish), name=str(i)) for i, wish in enumerate(wishes)]
    result = SAMPLER.sample(some_logits(5), rows)
    tokens = [result.tokens[str(i)] for i in range(5)]
    assert [token.logprob is None for token in tokens] == [True, False, False, True, False]
    assert [len(token.top) for token in tokens] == [0, 3, 0, 0, 1]


def test_asking_for_logprobs_changes_no_token() -> None:
    logits = some_logits(8)
    plain = [row(params(temperature=1.0, top_p=0.9), name=str(i), seed=i) for i in range(8)]
    asking = [row(params(temperature=1.0, top_p=0.9, logprobs=4), name=str(i), seed=i) for i in range(8)]
    without, within = SAMPLER.sample(logits, plain), SAMPLER.sample(logits, asking)
    assert [t.token_id for t in without.tokens.values()] == [t.token_id for t in within.tokens.values()]


def test_a_vocabulary_smaller_than_the_wish_reports_all_of_it() -> None:
    token = Sampler(3).sample(np.array([[0.0, 1.0, 1.0]], np.float32), [row(params(logprobs=20))]).tokens["s"]
    assert [top.token_id for top in token.top] == [1, 2, 0]
    assert sum(np.exp(top.logprob) for top in token.top) == pytest.approx(1)


def test_tokens_that_the_model_rules_out_are_not_listed() -> None:
    logits = np.array([[0.0, -np.inf, 1.0]], np.float32)
    token = Sampler(3).sample(logits, [row(params(logprobs=3))]).tokens["s"]
    assert [top.token_id for top in token.top] == [2, 0]


def test_a_large_common_offset_does_not_hurt() -> None:
    logits = some_logits(1)
    token = SAMPLER.sample(logits + np.float32(4096), [row(params(logprobs=1))]).tokens["s"]
    assert token.logprob == pytest.approx(log_softmax(logits[0]).max(), abs=1e-3)


def test_a_model_whose_nan_is_banned_still_fails_where_it_must_be_reported() -> None:
    logits = some_logits(2)
    logits[0, 9] = np.nan
    rows = [row(params(min_tokens=1, logprobs=1), name="ill", eos=[9]), row(params(logprobs=1), name="well")]
    result = SAMPLER.sample(logits, rows)
    assert set(result.errors) == {"ill"}
    assert set(result.tokens) == {"well"}
