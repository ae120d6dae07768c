"""What a client sees of a sequence: its text, without stop strings, stop tokens and special tokens."""

from __future__ import annotations

import pytest

from everystep.sampling_params import SamplingParams
from everystep.text import TextOutput, Tokenizer
from text.small_tokenizers import data_of, library


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(data_of(library("byte_level")))


def output(tokenizer: Tokenizer, prompt_ids: tuple[int, ...] = (), **params: object) -> TextOutput:
    return TextOutput(tokenizer, SamplingParams(**{"max_tokens": 100, **params}), prompt_ids)  # type: ignore[arg-type]


def test_a_stop_string_across_tokens_cuts_the_text_and_silences_the_rest(tokenizer: Tokenizer) -> None:
    text = output(tokenizer, stop=("over the",))
    ids = tokenizer.encode_text("the fox jumps over the dog")

    deltas = [text.push(token_id) for token_id in ids]

    assert len(tokenizer.encode_text("over the")) > 1
    assert "".join(delta.text for delta in deltas) == "the fox jumps "
    assert [delta.stop for delta in deltas if delta.stop] == ["over the"]
    assert text.finish().text == ""


def test_text_that_looked_like_a_stop_string_comes_at_the_end(tokenizer: Tokenizer) -> None:
    text = output(tokenizer, stop=("dogs!",))

    shown = "".join(text.push(token_id).text for token_id in tokenizer.encode_text("two dogs"))

    assert shown == "two "
    assert (text.finish().text, text.finish().stop) == ("dogs", None)


def test_a_character_that_the_end_cuts_in_two_is_left_out_and_releases_what_was_held(tokenizer: Tokenizer) -> None:
    text = output(tokenizer, stop=("bc",))
    by_bytes = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}

    assert text.push(by_bytes[b"b"]).text + text.push(by_bytes[b"\xf0"]).text == ""
    assert text.finish().text == "b"


def test_a_final_token_shows_no_text_whether_it_is_special_or_not(tokenizer: Tokenizer) -> None:
    text = output(tokenizer)
    dog, comma = tokenizer.encode_text("dog,")[-2:]

    assert text.push(dog).text != ""
    assert text.push(comma, is_final=True).text == ""
    assert text.finish().text == ""


def test_special_tokens_show_no_text_also_in_the_middle(tokenizer: Tokenizer) -> None:
    text = output(tokenizer, ignore_eos=True)
    (end,) = tokenizer.eos_token_ids
    (comma,) = tokenizer.encode_text(",")

    assert [text.push(token_id).text for token_id in (comma, end, comma)] == [",", "", ","]


@pytest.mark.parametrize(("min_tokens", "expected"), [(0, ""), (1, ""), (2, ","), (3, ",,"), (5, ",,,,")])
def test_the_token_that_completes_a_stop_string_is_at_least_number_min_tokens(
    tokenizer: Tokenizer, min_tokens: int, expected: str
) -> None:
    text = output(tokenizer, stop=(",",), min_tokens=min_tokens)
    (comma,) = tokenizer.encode_text(",")

    deltas = [text.push(comma) for _ in range(6)]

    assert "".join(delta.text for delta in deltas) == expected
    assert deltas.index(next(delta for delta in deltas if delta.stop)) + 1 == max(min_tokens, 1)


def test_an_output_continues_its_prompt() -> None:
    tokenizer = Tokenizer(data_of(library("llama_like")))
    ids = tokenizer.encode_text("dog")

    after_text = output(tokenizer, tuple(tokenizer.encode_text("the")))

    assert "".join(after_text.push(token_id).text for token_id in ids) == " dog"


def test_a_character_that_the_prompt_began_is_shown_whole(tokenizer: Tokenizer) -> None:
    by_bytes = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    ids = [by_bytes[bytes([byte])] for byte in "ж".encode()]

    text = output(tokenizer, tuple(ids[:1]))

    assert text.push(ids[1]).text == "ж"
