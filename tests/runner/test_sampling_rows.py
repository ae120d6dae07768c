"""A row's token depends on that row alone; a bad row fails alone."""

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from everystep.runner.sampling import Sampler
from everystep.sampling_params import SamplingParams
from everystep.types import Row
from runner.sampling_rows import draws, params, row

VOCAB = 1300
SAMPLER = Sampler(VOCAB, num_threads=2)
RECIPES = [
    params(),
    params(temperature=1.0),
    params(temperature=0.7, top_p=0.9, logprobs=3),
    params(temperature=1.0, top_p=0.2),
    params(temperature=1.0, top_k=20),
    params(temperature=1.0, top_k=400, top_p=0.5),
    params(temperature=1.3, min_p=0.01, logprobs=0),
    params(temperature=1.0, top_p=0.95, top_k=50, min_p=0.02, repetition_penalty=1.2, logit_bias={3: 2.0}),
    params(logprobs=5, presence_penalty=1.0),
    params(temperature=2.0, min_tokens=100, frequency_penalty=0.3),
]


def some_logits(num_rows: int, vocab: int = VOCAB) -> NDArray[np.float32]:
    return np.random.default_rng(6).normal(0, 2, (num_rows, vocab)).astype(np.float32)


def mixed_rows(num_rows: int) -> list[Row]:
    return [
        row(RECIPES[i % len(RECIPES)], name=str(i), seed=2**64 - 1 - i, prompt=[i % 7, 5], output=[9] * i, eos=[2])
        for i in range(num_rows)
    ]


@pytest.mark.parametrize("vocab", [1280, 1300, 49_152])  # seen in place, copied, real
def test_a_row_alone_and_in_a_batch_of_64_gives_the_same_token_and_logprobs(vocab: int) -> None:
    sampler = Sampler(vocab, num_threads=2)
    logits, rows = some_logits(64, vocab), mixed_rows(64)
    together = sampler.sample(logits, rows)
    for i, one in enumerate(rows):
        alone = sampler.sample(logits[i : i + 1], [one])
        assert alone.tokens[str(i)] == together.tokens[str(i)]


def test_neither_order_nor_company_changes_a_row() -> None:
    logits, rows = some_logits(40), mixed_rows(40)
    together = SAMPLER.sample(logits, rows)
    shuffler = random.Random(0)
    for size in (2, 7, 23, 40):
        chosen = shuffler.sample(range(40), size)
        result = SAMPLER.sample(logits[chosen], [rows[i] for i in chosen])
        assert result.tokens == {str(i): together.tokens[str(i)] for i in chosen}


def test_seed_and_position_fix_a_draw_and_either_changes_it() -> None:
    options = params(temperature=5.0)
    rows = [
        row(options, name=f"{seed} {length} {copy}", seed=seed, prompt=[1] * length)
        for seed in (0, 1, 2**32, 2**63, 2**64 - 1)
        for length in (1, 2, 3)
        for copy in (0, 1)
    ]
    tokens = SAMPLER.sample(np.tile(some_logits(1), (len(rows), 1)), rows).tokens
    firsts, seconds = list(tokens.values())[0::2], list(tokens.values())[1::2]
    assert firsts == seconds
    assert len({token.token_id for token in firsts}) > 10


def test_the_text_before_does_not_change_a_draw_but_by_its_length() -> None:
    options = params(temperature=5.0)
    rows = [row(options, name=str(i), seed=4, prompt=[i, 2 * i, 3], output=[i]) for i in range(5)]
    tokens = SAMPLER.sample(np.tile(some_logits(1), (5, 1)), rows).tokens
    assert len(set(tokens.values())) == 1


def test_a_batch_beyond_one_chunk_is_sampled_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, rows = some_logits(30), mixed_rows(30)
    whole = SAMPLER.sample(logits, rows)
    monkeypatch.setattr("everystep.runner.sampling.sampler.MAX_CHUNK_ELEMENTS", 4 * VOCAB)
    assert SAMPLER.sample(logits, rows) == whole


def test_greedy_takes_the_largest_logit_and_the_lowest_id_among_equals() -> None:
    logits = some_logits(3)
    logits[1, [1299, 40, 700]] = 50.0
    tokens = SAMPLER.sample(logits, [row(params(), name=str(i), seed=i) for i in range(3)]).tokens
    assert [tokens[str(i)].token_id for i in range(3)] == [logits[0].argmax(), 40, logits[2].argmax()]


def test_greedy_follows_bias_and_bans() -> None:
    logits = some_logits(2)
    best = int(logits[0].argmax())
    rows = [row(params(logit_bias={17: 100.0}), name="bias"), row(params(min_tokens=1), name="ban", eos=[best])]
    tokens = SAMPLER.sample(np.tile(logits[0], (2, 1)), rows).tokens
    assert tokens["bias"].token_id == 17
    assert tokens["ban"].token_id == np.argsort(-logits[0])[1]


def ill(kind: str) -> NDArray[np.float32]:
    logits = some_logits(1)[0]
    if kind == "all -inf":
        logits[:] = -np.inf
    else:
        logits[777] = {"nan": np.nan, "inf": np.inf}[kind]
    return logits


@pytest.mark.parametrize("kind", ["nan", "inf", "all -inf"])
@pytest.mark.parametrize(
    "options", RECIPES, ids=lambda o: f"T={o.temperature},k={o.top_k},p={o.top_p},m={o.min_p},l={o.logprobs}"
)
def test_a_row_without_finite_logits_fails_alone(kind: str, options: SamplingParams) -> None:
    logits, rows = some_logits(5), mixed_rows(5)
    expected = {str(i): SAMPLER.sample(logits, rows).tokens[str(i)] for i in (0, 1, 3, 4)}
    logits[2], rows[2] = ill(kind), row(options, name="ill", prompt=[1, 2, 3])
    result = SAMPLER.sample(logits, rows)
    assert result.tokens == expected
    assert set(result.errors) == {"ill"}
    assert "no token can be drawn" in result.errors["ill"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banning_the_whole_vocabulary_is_a_failure_in_words(temperature: float) -> None:
    options = params(temperature=temperature, min_tokens=1, stop_token_ids=(0, 1))
    result = Sampler(3).sample(np.zeros((1, 3), np.float32), [row(options, eos=[2])])
    assert not result.tokens
    assert "every logit is -inf" in result.errors["s"]


def test_no_rows_give_no_tokens() -> None:
    result = SAMPLER.sample(np.empty((0, VOCAB), np.float32), [])
    assert not result.tokens
    assert not result.errors


def test_logits_come_back_as_they_were() -> None:
    logits = some_logits(20)
    before = logits.copy()
    SAMPLER.sample(logits, mixed_rows(20))
    assert (logits == before).all()


@pytest.mark.parametrize("vocab", [1280, 1300])
def test_read_only_logits_do_where_nothing_is_edited(vocab: int) -> None:
    logits = some_logits(2, vocab)
    logits.flags.writeable = False
    rows = [row(params(temperature=1.0, top_p=0.5, logprobs=2), name="a"), row(params(), name="b")]
    assert set(Sampler(vocab).sample(logits, rows).tokens) == {"a", "b"}


def test_choices_with_their_own_seeds_differ() -> None:
    tokens = draws(SAMPLER, some_logits(1)[0], params(temperature=3.0), 40)
    assert len(set(tokens)) > 30
