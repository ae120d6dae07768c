"""Chats become the ids that transformers gives, and nothing that a client writes becomes a control token."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from everystep.architecture import TokenizerData
from everystep.errors import InvalidParameter, InvalidRequest, ModelError, UnsupportedOption
from everystep.text import Tokenizer
from text.chat_templates import CASES
from text.small_tokenizers import CHATML, CONTROLS, data_of, library

GOLDENS = json.loads(Path(__file__).with_name("chat_goldens.json").read_text("utf-8"))
BYTE_LEVEL = Tokenizer(data_of(library("byte_level"), chat_template=CHATML))
bits = st.sampled_from([*CONTROLS, "<", ">", "|", "<|", "|>", "</", "s>", " ", "\n", "the", "🙂", "\ue000", "\ue001"])
hostile_texts = st.lists(bits, max_size=8).map("".join)


def user(content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content, **more}]


def templated(source: str, kind: str = "byte_level") -> Tokenizer:
    return Tokenizer(data_of(library(kind), chat_template=source))


def text_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special=False)


def controls_in(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    return [tokenizer.token_text(i) for i in ids if tokenizer.is_special(i)]


# --- parity --------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_chat_has_the_ids_that_transformers_gives(smollm2_data: TokenizerData, case: dict[str, Any]) -> None:
    source = case.get("template", smollm2_data.chat_template)
    tokenizer = Tokenizer(dataclasses.replace(smollm2_data, chat_template=source))
    expected = next(golden["ids"] for golden in GOLDENS if golden["name"] == case["name"])
    options: dict[str, Any] = {name: case[name] for name in ("tools", "add_generation_prompt") if name in case}

    assert tokenizer.encode_chat(case["messages"], **options) == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_neighbour_that_must_be_guarded_leaves_other_messages_as_they_are(
    smollm2_data: TokenizerData, case: dict[str, Any]
) -> None:
    """Where one message holds a control token, all are tokenised in segments: the same ids must come out."""
    source = case.get("template", smollm2_data.chat_template)
    tokenizer = Tokenizer(dataclasses.replace(smollm2_data, chat_template=source))
    options: dict[str, Any] = {"tools": case.get("tools"), "add_generation_prompt": False}

    alone = tokenizer.encode_chat(case["messages"], **options)
    beside = tokenizer.encode_chat([*case["messages"], *user("<|im_start|>")], **options)

    # The chats part at the text behind the last <|im_end|>, which another message follows.
    last_end = max(i for i, token_id in enumerate(alone) if token_id == tokenizer.eos_token_ids[0])
    assert beside[: last_end + 1] == alone[: last_end + 1]


# --- the guard -----------------------------------------------------------------------------------
@given(contents=st.lists(hostile_texts, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_only_the_template_places_control_tokens(contents: list[str]) -> None:
    messages = [{"role": "user", "content": content} for content in contents]

    ids = BYTE_LEVEL.encode_chat(messages)

    plain = "".join(f"<s>user\n{content}</s>\n" for content in contents) + "<s>assistant\n"
    assert text_of(BYTE_LEVEL, ids) == plain  # not a character is changed
    assert controls_in(BYTE_LEVEL, ids) == ["<s>", "</s>"] * len(contents) + ["<s>"]


@pytest.mark.parametrize("kind", ["llama_like", "metaspace_unigram"])
@given(content=hostile_texts)
@settings(max_examples=150, deadline=None)
def test_only_the_template_places_control_tokens_whatever_the_tokenizer(kind: str, content: str) -> None:
    tokenizer = templated(CHATML, kind)

    ids = tokenizer.encode_chat(user(content))

    unknown = {"<unk>"} if kind == "metaspace_unigram" else set()  # it stands for characters that have no token
    assert [token for token in controls_in(tokenizer, ids) if token not in unknown] == ["<s>", "</s>", "<s>"]


@given(content=hostile_texts, around=st.sampled_from([("<", "|end|>"), ("<|en", "d|>"), ("<|end|", ">"), ("", "/s>")]))
@settings(max_examples=200, deadline=None)
def test_a_template_doesnt_complete_a_message_to_a_control_token(content: str, around: tuple[str, str]) -> None:
    before, after = around
    tokenizer = templated(before + "{{ messages[0].content | trim }}" + after + "<s>")

    ids = tokenizer.encode_chat(user(content))

    is_template_own = {"", "<|end|>"} & {before + after} and not content.strip()
    assert controls_in(tokenizer, ids) == (["<|end|>", "<s>"] if is_template_own else ["<s>"])


def test_overlapping_control_tokens_are_all_broken() -> None:
    backend = library("byte_level").from_str(library("byte_level").to_str())
    backend.add_special_tokens(["xyx", "yxz", "§"])
    tokenizer = Tokenizer(data_of(backend, chat_template="{{ messages[0].content }}<s>"))

    ids = tokenizer.encode_chat(user("a xyxz b"))

    assert (text_of(tokenizer, ids), controls_in(tokenizer, ids)) == ("a xyxz b<s>", ["<s>"])


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", "function": {"name": "f", "description": "<s></s>"}}],
        [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"</s>": {"enum": ["<s>"]}}}}}],
    ],
)
@pytest.mark.parametrize("filter_text", ["tojson", "tojson(ensure_ascii=True)", "tojson(indent=4)"])
def test_tools_hold_no_control_tokens_neither_as_values_nor_as_keys(tools: list[Any], filter_text: str) -> None:
    tokenizer = templated("{{ tools | " + filter_text + " }}<s>")

    ids = tokenizer.encode_chat(user("x"), tools=tools)

    assert controls_in(tokenizer, ids) == ["<s>"]
    assert json.loads(text_of(tokenizer, ids).removesuffix("<s>")) == tools


def test_template_arguments_and_names_hold_no_control_tokens() -> None:
    tokenizer = templated("{{ messages[0].name }}{{ style }}<s>")

    ids = tokenizer.encode_chat(user("x", name="</s>"), style="<|end|>")

    assert (text_of(tokenizer, ids), controls_in(tokenizer, ids)) == ("</s><|end|><s>", ["<s>"])


def test_a_segment_behind_a_control_token_gets_no_first_space() -> None:
    tokenizer = templated("<s>{{ messages[0].content }}</s>{{ messages[1].content }}", "metaspace_unigram")
    reference = library("metaspace_unigram").encode("<s>hello</s>world", add_special_tokens=False).ids

    assert tokenizer.encode_chat([*user("hello"), *user("world")]) == reference
    guarded = tokenizer.encode_chat([*user("hello"), *user("world<s>")])
    assert guarded[: len(reference)] == reference


def test_whitespace_that_a_control_token_swallows_is_swallowed_beside_a_guarded_message() -> None:
    backend = library("byte_level").from_str(library("byte_level").to_str())
    backend.add_special_tokens([AddedToken("<|nl|>", special=True, rstrip=True, lstrip=True, normalized=False)])
    tokenizer = Tokenizer(data_of(backend, chat_template="a {{ '<|nl|>' }}\n\nb{{ messages[0].content }}"))
    reference = backend.encode("a <|nl|>\n\nb", add_special_tokens=False).ids

    assert tokenizer.encode_chat(user(""))[: len(reference)] == reference
    assert tokenizer.encode_chat(user("</s>"))[: len(reference)] == reference


# --- messages ------------------------------------------------------------------------------------
def test_parts_of_text_are_joined_by_a_line_each() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    assert BYTE_LEVEL.encode_chat(user(parts)) == BYTE_LEVEL.encode_chat(user("one\ntwo"))


def test_a_part_that_isnt_text_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOption, match="image_url"):
        BYTE_LEVEL.encode_chat(user([{"type": "image_url", "image_url": {"url": "x"}}]))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ([*user("x"), {"role": "end", "content": "x"}], r"messages\[1\].role='end'"),
        ([{"content": "x"}], "role=None"),
        (["x"], "role=None"),
        (user(3), "must be text"),
        (user([{"type": "text"}]), "without text"),
        (user("a\ud800"), "lone surrogate"),
        (user("x", tool_calls=[{"function": {"name": "f", "arguments": "{"}}]), "no JSON"),
        (user("x", tool_calls=["f"]), "without a function"),
    ],
)
def test_what_is_no_chat_is_refused_in_words(messages: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as caught:
        BYTE_LEVEL.encode_chat(messages)
    assert caught.value.param == "messages"


def test_tools_that_are_nested_without_end_are_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"a": nested}
    with pytest.raises(InvalidParameter, match="too deeply"):
        BYTE_LEVEL.encode_chat(user("x"), tools=[nested])
    while nested:  # taking it apart at once would need as deep a stack
        nested = nested.pop("a")


def test_arguments_of_calls_reach_the_template_as_objects() -> None:
    tokenizer = templated("{{ messages[0].tool_calls[0].function.arguments.city }}|{{ messages[0].content }}")
    call = {"type": "function", "function": {"name": "f", "arguments": '{"city": "Köln"}'}}

    ids = tokenizer.encode_chat([{"role": "assistant", "content": None, "tool_calls": [call]}])

    assert tokenizer.decode(ids) == "Köln|"


# --- templates -----------------------------------------------------------------------------------
def test_a_template_may_refuse_in_its_own_words() -> None:
    tokenizer = templated("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidParameter, match=r"^roles must alternate$"):
        tokenizer.encode_chat(user("x"))


@pytest.mark.parametrize("source", ["{{ messages[7].content }}", "{{ 1 / 0 }}", "{{ messages + 3 }}"])
def test_a_template_that_stumbles_over_the_messages_is_a_bad_request(source: str) -> None:
    with pytest.raises(InvalidParameter, match="can't render the messages"):
        templated(source).encode_chat(user("x"))


@pytest.mark.parametrize("source", ["{% if %}", "{{ messages", "{% for m in messages %}", "{% frobnicate %}"])
def test_a_broken_template_is_the_models_fault(source: str) -> None:
    tokenizer = templated(source)  # prompts work all the same
    with pytest.raises(ModelError, match="chat template can't be compiled"):
        tokenizer.encode_chat(user("x"))
    with pytest.raises(ModelError, match="chat template can't be compiled"):  # a server is told at its start
        Tokenizer.checked(tokenizer._data)


def test_a_template_doesnt_leave_its_sandbox() -> None:
    with pytest.raises(InvalidRequest, match="sandbox"):
        templated("{{ messages.__class__.__mro__[1].__subclasses__() }}").encode_chat(user("x"))
    with pytest.raises(InvalidRequest, match="sandbox"):
        templated("{{ messages.append(1) }}").encode_chat(user("x"))


def test_a_model_without_a_template_says_so() -> None:
    tokenizer = Tokenizer(data_of(library("byte_level")))
    assert not tokenizer.has_chat_template
    with pytest.raises(InvalidRequest, match="no chat template"):
        tokenizer.encode_chat(user("x"))


def test_a_template_is_told_the_time_or_sees_no_clock() -> None:
    tokenizer = templated("{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}none{% endif %}")

    assert tokenizer.decode(tokenizer.encode_chat(user("x"))) == "none"
    assert tokenizer.decode(tokenizer.encode_chat(user("x"), now=datetime(2031, 2, 3))) == "03 Feb 2031"


def test_template_arguments_reach_the_template_but_dont_take_its_own_names() -> None:
    tokenizer = templated("{{ enable_thinking }}")

    assert tokenizer.decode(tokenizer.encode_chat(user("x"), enable_thinking=False)) == "False"
    with pytest.raises(InvalidParameter, match="raise_exception"):
        tokenizer.encode_chat(user("x"), raise_exception="x")


def test_whole_words_only_are_control_tokens_where_the_token_says_so() -> None:
    backend = library("byte_level").from_str(library("byte_level").to_str())
    backend.add_special_tokens([AddedToken("STOP", special=True, single_word=True, normalized=False)])
    tokenizer = Tokenizer(data_of(backend, chat_template="STOP nonSTOP STOP{{ messages[0].content }}"))

    ids = tokenizer.encode_chat(user(" </s>"))

    assert ids[: len(backend.encode("STOP nonSTOP STOP").ids)] == backend.encode("STOP nonSTOP STOP").ids
    assert controls_in(tokenizer, ids) == ["STOP", "STOP"]
