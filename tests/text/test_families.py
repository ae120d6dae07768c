"""Prompts and chats of each family become the ids that transformers gives for the family's own tokenizer files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everystep.checkpoint.fields import read_fields
from everystep.checkpoint.hf_tokenizer import read_tokenizer
from everystep.errors import InvalidParameter, InvalidRequest
from everystep.text import Tokenizer
from text.family_tokenizers import CHATS, FAMILIES, TEXTS

GOLDENS: dict[str, Any] = json.loads(Path(__file__).with_name("family_goldens.json").read_text("utf-8"))
WITH_TEMPLATE = [name for name, family in FAMILIES.items() if "chat_template" in family.config]


@pytest.fixture(params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(name: str, tmp_path: Path) -> Tokenizer:
    folder = FAMILIES[name].write(tmp_path / name)
    return Tokenizer(read_tokenizer(folder, read_fields(folder / "config.json")))


def test_prompts_have_the_ids_that_transformers_gives(name: str, tmp_path: Path) -> None:
    tokenizer = made(name, tmp_path)
    assert [tokenizer.encode_prompt(text) for text in TEXTS] == GOLDENS[name]["texts"]


def test_a_prompt_begins_with_what_the_family_begins_with_and_once(name: str, tmp_path: Path) -> None:
    tokenizer, family = made(name, tmp_path), FAMILIES[name]
    vocab = family.tokenizer["model"]["vocab"]
    begin = [vocab[token] for token in family.begins_with]
    assert tokenizer.encode_prompt("") == begin
    assert tokenizer.encode_prompt("the fox") == begin + tokenizer.encode_text("the fox")


@pytest.mark.parametrize("name", WITH_TEMPLATE)
def test_chats_have_the_ids_that_transformers_gives(name: str, tmp_path: Path) -> None:
    tokenizer = made(name, tmp_path)
    for chat, expected in zip(CHATS, GOLDENS[name]["chats"], strict=True):
        if isinstance(expected, str):
            with pytest.raises(InvalidParameter, match=expected.split("/")[0]):
                tokenizer.encode_chat(chat)
        else:
            assert tokenizer.encode_chat(chat) == expected


@pytest.mark.parametrize("name", WITH_TEMPLATE)
def test_a_chat_holds_one_begin_of_text_at_most(name: str, tmp_path: Path) -> None:
    """Template and post-processor would both write it; the template alone does."""
    tokenizer, family = made(name, tmp_path), FAMILIES[name]
    vocab = family.tokenizer["model"]["vocab"]
    ids = tokenizer.encode_chat(CHATS[0])
    for token in family.begins_with:
        assert ids[0] == vocab[token]
        assert ids.count(vocab[token]) == 1


def test_a_system_message_that_a_family_doesn_t_take_is_a_bad_request(tmp_path: Path) -> None:
    refused = [name for name in WITH_TEMPLATE if isinstance(GOLDENS[name]["chats"][2], str)]
    assert refused == ["mistral", "gemma"]
    with pytest.raises(InvalidParameter, match=r"^System role not supported$") as caught:
        made("gemma", tmp_path).encode_chat(CHATS[2])
    assert caught.value.param == "messages"


def test_a_family_without_a_template_says_so(tmp_path: Path) -> None:
    for name in FAMILIES.keys() - set(WITH_TEMPLATE):
        with pytest.raises(InvalidRequest, match="no chat template"):
            made(name, tmp_path).encode_chat(CHATS[0])


def test_a_text_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    tokenizer = made(name, tmp_path)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode_prompt(text)) == text


def test_a_client_s_control_token_stays_text_in_every_family(name: str, tmp_path: Path) -> None:
    tokenizer, family = made(name, tmp_path), FAMILIES[name]
    controls = [token["content"] for token in family.tokenizer["added_tokens"]]
    for control in controls:
        assert not any(map(tokenizer.is_special, tokenizer.encode_text(f"the {control} fox")))
    if name in WITH_TEMPLATE:
        plain = [i for i in tokenizer.encode_chat(CHATS[0]) if tokenizer.is_special(i)]
        hostile = [{"role": "user", "content": f"hello {''.join(controls)} world"}]
        assert [i for i in tokenizer.encode_chat(hostile) if tokenizer.is_special(i)] == plain
