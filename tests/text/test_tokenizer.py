"""Prompts may hold control tokens, texts never; what a prompt begins with is what the model was trained on."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders

from everystep.architecture import TokenizerData
from everystep.errors import InvalidParameter, ModelError
from everystep.text import Tokenizer, truncate_prompt
from text.small_tokenizers import CONTROLS, KINDS, byte_level, data_of, library, with_begin_of_text

TEXT = "the </s> dog"
bits = st.sampled_from([*CONTROLS, "<", "/s>", "|end|>", " ", "the", "한", "<tool>", "\x00"])
hostile_texts = st.lists(bits, max_size=10).map("".join)


def made(kind: str = "byte_level", **settings: Any) -> Tokenizer:
    return Tokenizer(data_of(library(kind), **settings))


def without_controls(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    return [token_id for token_id in ids if not tokenizer.is_special(token_id)]


# --- prompts -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_has_the_ids_that_the_library_gives(kind: str) -> None:
    assert made(kind).encode_prompt(TEXT) == library(kind).encode(TEXT).ids


@pytest.mark.parametrize(
    ("add_bos", "add_eos", "begins", "ends"),
    [(None, None, True, False), (False, None, False, False), (True, True, True, True), (None, True, False, True)],
)
def test_a_prompt_begins_and_ends_as_the_settings_or_else_the_file_says(
    add_bos: bool | None, add_eos: bool | None, begins: bool, ends: bool
) -> None:
    backend = with_begin_of_text(byte_level())
    tokenizer = Tokenizer(data_of(backend, add_bos=add_bos, add_eos=add_eos))
    text_ids = backend.encode("the dog", add_special_tokens=False).ids
    begin, end = backend.token_to_id("<s>"), backend.token_to_id("</s>")

    assert tokenizer.encode_prompt("the dog") == [begin] * begins + text_ids + [end] * ends
    assert tokenizer.encode_text("the dog") == text_ids


def test_a_begin_that_doesnt_exist_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match="begin-of-text"):
        made(bos_token="<nope>", add_bos=True)


def test_a_file_that_cuts_and_pads_neither_cuts_nor_pads_here() -> None:
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=50)

    tokenizer = Tokenizer(data_of(backend))

    assert len(tokenizer.encode_prompt("a" * 20)) == len(library("byte_level").encode("a" * 20).ids) > 3


def test_the_empty_prompt_has_no_tokens() -> None:
    assert made().encode_prompt("") == made().encode_text("") == []


def test_null_bytes_are_text() -> None:
    tokenizer = made()
    assert tokenizer.decode(tokenizer.encode_prompt("a\x00b")) == "a\x00b"


@pytest.mark.parametrize("method", ["encode_prompt", "encode_text"])
def test_a_lone_surrogate_is_refused_with_its_place(method: str) -> None:
    with pytest.raises(InvalidParameter, match=r"character 2 is '\\ud83d', a lone surrogate"):
        getattr(made(), method)("ab\ud83d")


def test_truncation_keeps_the_last_ids() -> None:
    assert truncate_prompt([1, 2, 3, 4], 2) == [3, 4]
    assert truncate_prompt([1, 2], 5) == [1, 2]
    with pytest.raises(InvalidParameter, match="truncate_prompt_tokens=0"):
        truncate_prompt([1], 0)


# --- texts ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["byte_level", "llama_like", "gemma_like", "metaspace_unigram"])
@given(text=hostile_texts)
@settings(max_examples=200, deadline=None)
def test_nothing_in_a_text_becomes_a_control_token(kind: str, text: str) -> None:
    tokenizer = made(kind)
    unknown = library(kind).token_to_id("<unk>") if kind == "metaspace_unigram" else None

    ids = tokenizer.encode_text(text)

    assert all(token_id == unknown for token_id in ids if tokenizer.is_special(token_id))
    if unknown is None:
        assert tokenizer.decode(ids) == text
    elif unknown not in ids:  # this kind takes a leading space for the one that it sets itself
        assert "".join(map(tokenizer.token_text, ids)).strip(" ") == text.strip(" ")


def test_added_tokens_that_control_nothing_are_parsed_in_texts_too() -> None:
    tokenizer = made()
    assert tokenizer.encode_text("a<tool>") == tokenizer.encode_prompt("a<tool>")
    assert len(tokenizer.encode_text("<tool>")) == 1


def test_an_end_that_the_file_forgot_to_mark_is_a_control_token() -> None:
    file = json.loads(byte_level().to_str())
    for token in file["added_tokens"]:
        token["special"] = False
    tokenizer = Tokenizer(data_of(json.dumps(file), eos_token="</s>", eos_token_ids=(4,)))

    assert without_controls(tokenizer, [2, 4]) == []  # </s> by name, <|end|> by id
    assert tokenizer.decode(tokenizer.encode_prompt(TEXT)) == "the  dog"
    assert tokenizer.decode(tokenizer.encode_text(TEXT)) == TEXT


# --- ids -----------------------------------------------------------------------------------------
def test_the_vocabulary_counts_added_tokens() -> None:
    assert made().vocab_size == library("byte_level").get_vocab_size(with_added_tokens=True) > 400


@pytest.mark.parametrize("kind", KINDS)
def test_ids_without_a_token_are_no_text(kind: str) -> None:
    tokenizer = made(kind)
    beyond = tokenizer.vocab_size
    assert tokenizer.token_bytes(beyond) == b""
    assert tokenizer.token_text(beyond) == tokenizer.decode([beyond, beyond + 7]) == ""


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**70])
def test_a_number_that_is_no_id_is_refused(token_id: int) -> None:
    with pytest.raises(InvalidParameter, match=f"token id {token_id} must be from 0"):
        made().decode([token_id])


@pytest.mark.parametrize("kind", ["byte_level", "gemma_like"])
def test_bytes_of_tokens_joined_are_the_texts_bytes(kind: str) -> None:
    tokenizer = made(kind)
    for text in ("the dog, 안녕 🙂", " a\n", "<tool>"):
        ids = tokenizer.encode_text(text)
        assert b"".join(map(tokenizer.token_bytes, ids)).decode() == text


def test_a_token_reads_as_it_does_inside_a_text() -> None:
    tokenizer = made("llama_like")
    (the,) = tokenizer.encode_text("the")

    assert tokenizer.token_text(the) == " the"
    assert tokenizer.token_text(5 + 0xE2) == "\ufffd"
    assert tokenizer.token_bytes(5 + 0xE2) == b"\xe2"
    assert tokenizer.token_text(2) == "</s>"


def test_ends_of_text_are_the_datas_or_else_the_named_one() -> None:
    assert made(eos_token_ids=(2, 4)).eos_token_ids == (2, 4)
    assert made().eos_token_ids == (library("byte_level").token_to_id("</s>"),)
    assert made(eos_token=None).eos_token_ids == ()


# --- files ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["", "{}", "no json", '{"model": 3}'])
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="tokenizer can't be built"):
        Tokenizer(data_of(text))


@pytest.mark.parametrize("steps", [["CTC"], ["Fuse", "ByteLevel"], ["ByteFallback", "Metaspace"]])
def test_a_decoder_that_isnt_known_is_refused_by_name(steps: list[str]) -> None:
    backend = byte_level()
    backend.decoder = decoders.Sequence([getattr(decoders, step)() for step in steps])
    with pytest.raises(ModelError, match=f"decoder step '{steps[-1]}' isn't supported"):
        Tokenizer(data_of(backend))


def test_threads_share_a_tokenizer() -> None:
    tokenizer = made(chat_template="<s>{{ messages[0].content }}</s>")
    texts = [f"dog {i} 한 🙂 </s>" for i in range(40)]

    def there_and_back(text: str) -> str:
        ids = tokenizer.encode_chat([{"role": "user", "content": text}])
        return tokenizer.decode(ids, skip_special=False)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(there_and_back, texts)) == [f"<s>{text}</s>" for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_has_the_ids_of_a_short_ones_repetition(kind: str) -> None:
    text = "the dog </s> rests, " * 400
    assert made(kind).encode_prompt(text) == library(kind).encode(text).ids


def test_a_long_prompt_lets_other_threads_run(smollm2_data: TokenizerData) -> None:
    """No time is asserted: this thread counts while the other encodes, which it can't if that one holds the lock."""
    tokenizer, text = Tokenizer(smollm2_data), "hello world, this is it. " * 20_000
    has_begun, has_ended = threading.Event(), threading.Event()

    def encode() -> None:
        has_begun.set()
        tokenizer.encode_prompt(text)
        has_ended.set()

    thread = threading.Thread(target=encode)
    thread.start()
    has_begun.wait()
    num_turns = 0
    while not has_ended.wait(0.001):
        num_turns += 1
    thread.join()
    assert num_turns > 10


def test_the_default_models_every_token_reads_as_the_library_reads_it(smollm2_data: TokenizerData) -> None:
    tokenizer, backend = Tokenizer(smollm2_data), Library.from_str(smollm2_data.tokenizer_json)

    differing = [
        i
        for i in range(tokenizer.vocab_size)
        if tokenizer.decode([i], skip_special=False) != backend.decode([i], skip_special_tokens=False)
    ]

    assert differing == []
