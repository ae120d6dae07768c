"""The stream is the whole decode, for any text and for any ids."""

from __future__ import annotations

import codecs
import functools
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everystep.text import Detokenizer, Tokenizer
from text.small_tokenizers import BYTES, CONTROLS, KINDS, data_of, library

REPLACEMENT = "\ufffd"
WRITINGS = [
    "Hello, I am a cat.",
    "  two spaces,   three\n\n\ttab ",
    "안녕하세요 세계, 한글이 조각나지 않습니다",
    "مرحبا بالعالم",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈👍🏽",
    "e\u0301 o\u0308\u0323 नमस्ते ไทย မြန်မာ",
    "def f(x):\n    return {'a': x ** 2}  # ok\n",
    "\u200b\u0000\x07 \ufeff",
]
fragments = st.sampled_from(WRITINGS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
texts = st.lists(fragments, max_size=5).map("".join)
ids_of_any_kind = st.lists(st.integers(0, 10_000), max_size=40)
TEXT_KINDS = ["byte_level", "llama_like", "gemma_like"]  # those that have a token for every character
all_kinds = pytest.mark.parametrize("kind", KINDS)
text_kinds = pytest.mark.parametrize("kind", TEXT_KINDS)


@functools.cache
def tokenizer_of(kind: str) -> Tokenizer:
    return Tokenizer(data_of(library(kind)))


def folded(kind: str, ids: list[int]) -> list[int]:
    """Any numbers as ids of this vocabulary and some behind its end, which stand for nothing."""
    return [token_id % (tokenizer_of(kind).vocab_size + 5) for token_id in ids]


def streamed(tokenizer: Tokenizer, ids: list[int], prompt_ids: Sequence[int] = (), **settings: bool) -> str:
    detokenizer = Detokenizer(tokenizer, prompt_ids, **settings)
    return "".join(map(detokenizer.push, ids)) + detokenizer.flush()


def decoded_plainly(kind: str, ids: list[int]) -> str:
    """The library's decode, run by run of fallback bytes, in which each byte that is no character is U+FFFD."""
    backend, parts, run = library(kind), "", b""
    shown = [token for token in map(backend.id_to_token, ids) if token is not None and token not in CONTROLS]
    for token in [*shown, None]:
        if token in BYTES:
            run += bytes([BYTES.index(token)])
            continue
        # surrogateescape gives one lone surrogate for each byte that is no character
        escaped = run.decode(errors="surrogateescape")
        parts += "".join(REPLACEMENT if "\udc80" <= char <= "\udcff" else char for char in escaped)
        parts += "" if token is None else token.replace("▁", " ")
        run = b""
    return parts.removeprefix(" ") if kind == "llama_like" else parts


@text_kinds
@given(text=texts)
@settings(max_examples=150, deadline=None)
def test_streamed_tokens_joined_are_the_text(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    ids = tokenizer.encode_text(text)

    detokenizer = Detokenizer(tokenizer)
    stream = "".join(map(detokenizer.push, ids))

    assert stream == text
    assert detokenizer.flush() == ""  # a whole text leaves nothing behind


@text_kinds
@given(text=texts)
@settings(max_examples=60, deadline=None)
def test_what_is_shown_so_far_is_always_a_beginning_of_the_text(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    detokenizer, shown = Detokenizer(tokenizer), ""

    for token_id in tokenizer.encode_text(text):
        shown += detokenizer.push(token_id)
        assert text.startswith(shown)


@pytest.mark.parametrize("kind", ["byte_level", "metaspace_unigram", "word_pieces", "words_without_decoder"])
@pytest.mark.parametrize("skip_special", [True, False])
@given(ids=ids_of_any_kind)
@settings(max_examples=150, deadline=None)
def test_any_ids_stream_as_the_library_decodes_them(kind: str, skip_special: bool, ids: list[int]) -> None:
    ids = folded(kind, ids)
    expected = library(kind).decode(ids, skip_special_tokens=skip_special)

    assert streamed(tokenizer_of(kind), ids, skip_special=skip_special) == expected
    assert tokenizer_of(kind).decode(ids, skip_special=skip_special) == expected


@pytest.mark.parametrize("kind", ["llama_like", "gemma_like"])
@given(ids=ids_of_any_kind | st.lists(st.integers(5, 300), max_size=20))
@example(ids=[5 + 0xE2, 5 + 0x82, 5 + 0xE2, 5 + 0x82, 5 + 0xAC])
@settings(max_examples=200, deadline=None)
def test_any_ids_with_fallback_bytes_keep_their_valid_characters(kind: str, ids: list[int]) -> None:
    ids = folded(kind, ids)
    expected = decoded_plainly(kind, ids)
    by_library = library(kind).decode(ids)

    assert streamed(tokenizer_of(kind), ids) == expected
    assert tokenizer_of(kind).decode(ids) == expected
    if REPLACEMENT not in by_library:
        assert expected == by_library


def test_a_character_of_fallback_bytes_is_shown_as_soon_as_it_is_whole() -> None:
    detokenizer = Detokenizer(tokenizer_of("gemma_like"))
    ids = [5 + byte for byte in "မြ".encode()]

    assert [detokenizer.push(token_id) for token_id in ids] == ["", "", "မ", "", "", "ြ"]


@all_kinds
@given(prompt_ids=ids_of_any_kind, ids=ids_of_any_kind)
@settings(max_examples=150, deadline=None)
def test_a_text_behind_a_prompt_is_the_whole_text_without_what_the_prompt_had_shown(
    kind: str, prompt_ids: list[int], ids: list[int]
) -> None:
    tokenizer = tokenizer_of(kind)
    prompt_ids, ids = folded(kind, prompt_ids), folded(kind, ids)
    reader = Detokenizer(tokenizer)
    shown = "".join(map(reader.push, prompt_ids))

    assert shown + streamed(tokenizer, ids, prompt_ids) == tokenizer.decode(prompt_ids + ids)


def test_a_continuation_keeps_the_space_before_its_first_word() -> None:
    tokenizer = tokenizer_of("llama_like")
    prompt_ids, ids = tokenizer.encode_text("the dog"), tokenizer.encode_text("and the fox")

    assert streamed(tokenizer, ids) == "and the fox"
    assert streamed(tokenizer, ids, [1, *prompt_ids]) == " and the fox"
    assert streamed(tokenizer, ids, [1]) == "and the fox"  # <s> alone is no text: the space belongs to the begin


def test_incomplete_characters_at_the_end_show_as_the_whole_decode_has_them() -> None:
    tokenizer = tokenizer_of("byte_level")
    ids = [token_id for byte in b"ab\xf0\x9f\x99" for token_id in ids_of_byte(tokenizer, byte)]

    detokenizer = Detokenizer(tokenizer)

    assert "".join(map(detokenizer.push, ids)) == "ab"
    assert detokenizer.flush() == b"\xf0\x9f\x99".decode(errors="replace") == REPLACEMENT


def ids_of_byte(tokenizer: Tokenizer, byte: int) -> list[int]:
    return [next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == bytes([byte]))]


@given(data=st.binary(max_size=12))
@settings(max_examples=200, deadline=None)
def test_any_bytes_stream_as_a_plain_utf8_decoder_reads_them(data: bytes) -> None:
    tokenizer = tokenizer_of("byte_level")
    ids = [token_id for byte in data for token_id in ids_of_byte(tokenizer, byte)]

    assert streamed(tokenizer, ids) == codecs.decode(data, "utf-8", "replace")
    assert b"".join(map(tokenizer.token_bytes, ids)) == data
