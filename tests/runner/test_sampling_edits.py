"""Bans, bias and penalties, against values computed by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from everystep.runner.sampling.edits import edited
from everystep.runner.sampling.history import Histories, History
from everystep.types import Row
from runner.sampling_rows import params, row


def after_edits(logits: list[float], edited_row: Row) -> list[float]:
    """What the draw sees; also that the logits are restored."""
    array = np.array([logits], np.float32)
    with edited(array, [edited_row], Histories(len(logits))):
        seen: list[float] = array[0].tolist()
    assert array[0].tolist() == np.array(logits, np.float32).tolist()
    return seen


def test_repetition_divides_positive_and_multiplies_negative_logits_of_prompt_and_output() -> None:
    seen = after_edits([3.0, -3.0, 5.0, 0.0, 7.0], row(params(repetition_penalty=1.5), prompt=[0, 3], output=[1, 1]))
    assert seen == [2.0, -4.5, 5.0, 0.0, 7.0]


def test_frequency_counts_and_presence_notes_what_was_generated_only() -> None:
    options = params(frequency_penalty=0.25, presence_penalty=0.5)
    seen = after_edits([1.0, 1.0, 1.0, 1.0], row(options, prompt=[0, 0, 1], output=[1, 2, 2, 2]))
    assert seen == [1.0, 1.0 - 0.25 - 0.5, 1.0 - 0.75 - 0.5, 1.0]


def test_negative_penalties_and_small_repetition_encourage() -> None:
    options = params(frequency_penalty=-0.5, presence_penalty=-1.0, repetition_penalty=0.5)
    assert after_edits([2.0, -2.0, 1.0], row(options, prompt=[1], output=[0])) == [4.0 + 0.5 + 1.0, -1.0, 1.0]


def test_bias_comes_before_penalties_as_in_vllm() -> None:
    options = params(logit_bias={0: -4.0, 2: 3.5}, repetition_penalty=2.0, presence_penalty=1.0)
    assert after_edits([1.0, 1.0, 1.0], row(options, prompt=[1], output=[0])) == [-6.0 - 1.0, 0.5, 4.5]


def test_end_and_stop_tokens_are_banned_until_min_tokens_are_there() -> None:
    options = params(min_tokens=2, stop_token_ids=(3,))
    banned = [1.0, 1.0, -np.inf, -np.inf]
    assert after_edits([1.0] * 4, row(options, output=[0], eos=[2])) == banned
    assert after_edits([1.0] * 4, row(options, prompt=[0, 0, 0], eos=[2])) == banned  # the prompt doesn't count
    assert after_edits([1.0] * 4, row(options, output=[0, 0], eos=[2])) == [1.0] * 4


def test_a_ban_outweighs_any_bias_or_penalty() -> None:
    options = params(min_tokens=1, logit_bias={2: 100.0}, repetition_penalty=0.01, presence_penalty=-2.0)
    assert after_edits([1.0] * 3, row(options, prompt=[2], eos=[2]))[2] == -np.inf


def test_ids_outside_the_vocabulary_are_left_alone() -> None:
    options = params(
        min_tokens=5, logit_bias={99: 5.0, 1: 1.0}, stop_token_ids=(98,), repetition_penalty=2.0, frequency_penalty=1.0
    )
    assert after_edits([4.0] * 3, row(options, prompt=[97, 0], output=[96], eos=[95])) == [2.0, 5.0, 4.0]


def test_only_the_rows_that_ask_are_edited() -> None:
    logits = np.ones((3, 4), np.float32)
    rows = [row(params(), name="a"), row(params(logit_bias={1: 2.0}), name="b"), row(params(temperature=1.0), name="c")]
    with edited(logits, rows, Histories(4)):
        assert logits.tolist() == [[1.0] * 4, [1.0, 3.0, 1.0, 1.0], [1.0] * 4]


def test_logits_are_restored_when_the_draw_fails() -> None:
    logits = np.ones((1, 4), np.float32)
    with pytest.raises(RuntimeError), edited(logits, [row(params(logit_bias={1: 2.0}))], Histories(4)):
        raise RuntimeError
    assert logits.tolist() == [[1.0] * 4]


def counts_of(history: History) -> dict[int, float]:
    return dict(zip(history.token_ids.tolist(), history.output_counts.tolist(), strict=True))


@given(
    prompt=st.lists(st.integers(0, 300), min_size=1, max_size=150), output=st.lists(st.integers(0, 300), max_size=80)
)
def test_a_history_grown_token_by_token_counts_like_a_counter(prompt: list[int], output: list[int]) -> None:
    sequence = row(params(), prompt=prompt).sequence
    histories = Histories(250)
    histories.of(sequence)
    for token in output:
        sequence.token_ids.append(token)
        grown = histories.of(sequence)
    generated = Counter(output)
    expected = {token: generated[token] for token in [*prompt, *output] if token < 250}
    assert counts_of(histories.of(sequence)) == expected
    assert counts_of(Histories(250).of(sequence)) == expected
    assert len(histories) == 1
    assert not output or grown is histories.of(sequence)


def test_a_history_goes_with_its_sequence() -> None:
    histories = Histories(10)
    kept = row(params(), name="kept").sequence
    histories.of(kept)
    histories.of(row(params(), name="gone").sequence)
    assert len(histories) == 1


def test_two_sequences_of_one_name_have_histories_of_their_own() -> None:
    histories = Histories(10)
    first, second = row(params(), prompt=[1]).sequence, row(params(), prompt=[2]).sequence
    assert counts_of(histories.of(first)) == {1: 0}
    assert counts_of(histories.of(second)) == {2: 0}


def as_float32(values: list[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_penalties_are_computed_in_float32() -> None:
    """As vLLM does, so that equal requests give equal logits."""
    seen = after_edits([1.1, 0.0], row(params(repetition_penalty=1.3, frequency_penalty=0.1), prompt=[1], output=[0]))
    assert seen[0] == float(as_float32([1.1])[0] / np.float32(1.3) - np.float32(0.1))
