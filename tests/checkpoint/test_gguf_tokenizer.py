"""Tokenizers made of GGUF metadata: ids as the models' own tokenizers give them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from everystep.architecture import TokenizerData
from everystep.checkpoint import default_cache_dir, open_checkpoint
from everystep.checkpoint.fields import Fields
from everystep.checkpoint.gguf_tokenizer import read_tokenizer
from everystep.checkpoint.pre_tokenizers import PRE_TOKENIZERS
from everystep.errors import ModelError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "smollm2_tokenizer.json").read_text("utf-8"))


def read(metadata: Mapping[str, Any]) -> TokenizerData:
    return read_tokenizer(Fields({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, "m.gguf"))


@pytest.fixture(scope="module")
def smollm2() -> TokenizerData:
    return open_checkpoint("smollm2-135m", default_cache_dir()).tokenizer


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: repr(case["text"][:20]))
def test_smollm2_gives_the_ids_of_its_published_tokenizer(case: dict[str, Any], smollm2: TokenizerData) -> None:
    tokenizer = Tokenizer.from_str(smollm2.tokenizer_json)
    ids = tokenizer.encode(case["text"], add_special_tokens=False).ids
    assert ids == case["token_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=False) == case["text"]


def test_smollm2_names_its_special_tokens_and_template(smollm2: TokenizerData) -> None:
    assert (smollm2.bos_token, smollm2.bos_token_id) == ("<|im_start|>", 1)
    assert (smollm2.eos_token, smollm2.eos_token_ids) == ("<|im_end|>", (2,))
    assert (smollm2.add_bos, smollm2.add_eos) == (False, False)
    assert smollm2.chat_template is not None
    assert "<|im_start|>assistant" in smollm2.chat_template
    special = [token["content"] for token in json.loads(smollm2.tokenizer_json)["added_tokens"] if token["special"]]
    assert len(special) == 17


BYTES = [chr(code) for code in range(33, 127)]
BYTE_LEVEL = {
    "model": "gpt2",
    "pre": "gpt-2",
    "tokens": [*BYTES, "Ġ", "Ċ", "12", "123", "Ġ1", "<end>", "<tool>"],
    "token_type": [1] * (len(BYTES) + 5) + [3, 4],
    "merges": ["1 2", "12 3", "Ġ 1"],
    "eos_token_id": len(BYTES) + 5,
}


def texts_of(metadata: Mapping[str, Any], text: str) -> list[str]:
    data = read(metadata)
    return Tokenizer.from_str(data.tokenizer_json).encode(text, add_special_tokens=False).tokens


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("gpt-2", "a 123", ["a", "Ġ", "123"]),  # one word, in which "Ġ 1" comes too late
        ("smollm", "a 123", ["a", "Ġ", "1", "2", "3"]),
        ("llama-bpe", "123123", ["123", "123"]),
        ("qwen2", "123", ["1", "2", "3"]),
        ("tekken", "123", ["1", "2", "3"]),
        ("default", "1231", ["123", "1"]),
    ],
)
def test_pre_tokenizers_cut_numbers_their_own_way(pre: str, text: str, tokens: list[str]) -> None:
    assert texts_of({**BYTE_LEVEL, "pre": pre}, text) == tokens


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
@given(text=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_every_pre_tokenizer_loses_nothing(pre: str, text: str) -> None:
    tokenizer = Tokenizer.from_str(read({**BYTE_LEVEL, "pre": pre}).tokenizer_json)
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_control_tokens_are_special_and_user_defined_ones_are_not() -> None:
    added = json.loads(read(BYTE_LEVEL).tokenizer_json)["added_tokens"]
    assert [(token["content"], token["special"]) for token in added] == [("<end>", True), ("<tool>", False)]
    assert texts_of(BYTE_LEVEL, "a<end>b<tool>") == ["a", "<end>", "b", "<tool>"]


def test_end_tokens_are_the_end_of_text_and_the_end_of_turn() -> None:
    assert read({**BYTE_LEVEL, "eot_token_id": 3}).eos_token_ids == (len(BYTES) + 5, 3)


@pytest.mark.parametrize(("pre", "adds"), [("llama-bpe", True), ("tekken", True), ("qwen2", False), ("smollm", False)])
def test_a_begin_token_is_added_by_the_family_s_custom_unless_the_file_says(pre: str, adds: bool) -> None:
    assert read({**BYTE_LEVEL, "pre": pre}).add_bos is adds
    assert read({**BYTE_LEVEL, "pre": pre, "add_bos_token": not adds}).add_bos is not adds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pre": "klingon"}, "pre-tokenizer 'klingon'"),
        ({"model": "rwkv"}, "tokenizer model 'rwkv'"),
        ({"tokens": []}, "no tokenizer"),
        ({"eos_token_id": 9999}, "eos_token_id is 9999"),
        ({"token_type": [1]}, "1 token types for"),
        ({"tokens": [1, 2]}, "tokens is"),
        ({"model": "llama", "scores": [0.5]}, "1 scores for"),
    ],
)
def test_a_tokenizer_that_isn_t_known_or_whole_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        read({**BYTE_LEVEL, **changes})


# A SentencePiece model by hand: byte pieces, letters, then pieces with falling scores.
BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = ["▁", "a", "b", "c", "d", "é"]
PIECES = ["ab", "cd", "▁a", "abcd", "▁b", "▁ab", "da", "bc", "▁abcd", "▁▁"]
SPM_TOKENS = ["<unk>", "<s>", "</s>", *BYTE_PIECES, *LETTERS, *PIECES]
SPM_SCORES = [0.0] * (3 + 256) + [-100.0] * len(LETTERS) + [-float(i) for i in range(len(PIECES))]
SPM = {
    "model": "llama",
    "tokens": SPM_TOKENS,
    "scores": SPM_SCORES,
    "token_type": [2, 3, 3, *[6] * 256, *[1] * (len(LETTERS) + len(PIECES))],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "unknown_token_id": 0,
}


def plain_sentencepiece(text: str) -> list[str]:
    """The definition: spaces become ▁, then the best-scored neighbours merge, the leftmost first; rests are bytes."""
    scores = dict(zip(SPM_TOKENS, SPM_SCORES, strict=True))
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        pairs = [
            (-scores[left + right], i) for i, (left, right) in enumerate(pairwise(symbols)) if left + right in scores
        ]
        if not pairs:
            break
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    return [piece for symbol in symbols for piece in ([symbol] if symbol in scores else bytes_of(symbol))]


def bytes_of(symbol: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in symbol.encode()]


@given(text=st.text("abcd é한z", max_size=40))
def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(text: str) -> None:
    tokenizer = Tokenizer.from_str(read(SPM).tokenizer_json)
    encoded = tokenizer.encode(text, add_special_tokens=False)
    assert encoded.tokens == plain_sentencepiece(text)
    assert tokenizer.decode(encoded.ids) == text


def test_sentencepiece_adds_no_space_where_the_file_says_so() -> None:
    tokenizer = Tokenizer.from_str(read({**SPM, "add_space_prefix": False}).tokenizer_json)
    encoded = tokenizer.encode("ab cd", add_special_tokens=False)
    assert encoded.tokens == ["ab", "▁", "cd"]
    assert tokenizer.decode(tokenizer.encode(" ab").ids) == " ab"


def test_sentencepiece_begins_with_its_begin_token() -> None:
    data = read(SPM)
    assert (data.add_bos, data.bos_token, data.unk_token) == (True, "<s>", "<unk>")
    assert Tokenizer.from_str(data.tokenizer_json).encode("ab").tokens[0] == "<s>"  # for readers who know no flag
