"""No option is taken and ignored: each field of each body changes what comes back, or is refused by its name.

The fields are read from the bodies' models, so a new one fails here until it has a probe.  A real model answers, not a
scripted one: an option counts only when the client can see what it did.  The lane and the priority of a request aren't
in the reply; there what the engine was asked for counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from api.harness import EOS_ID, chunks
from api.real_model import Asked, asking
from everystep.api.native_bodies import Body, DetokenizeBody, NativeOptions, PromptBody, PromptsBody, VllmBody
from everystep.api.openai_bodies import ChatBody, CompletionBody, ContentPart, Message, NotDone, StreamOptions
from everystep.api.trying import TriedPrompt, TryBody

TOKEN = 70  # any: what its bias of 100 draws for certain
LAST_WORD = {"logit_bias": {str(EOS_ID): 100}}  # the model ends at once, unless an option keeps it from that
# A handful of tokens drawn over and over, unless having said one costs something.
REPEATS = {"logit_bias": {str(token): 50 for token in range(TOKEN, TOKEN + 20)}, "max_tokens": 40, "temperature": 3.0}
NO_EFFECT = {"user", "metadata"}  # labels of the caller's: their description says so
SHOWN_BELOW = {(PromptBody, "ignore_eos"), (PromptsBody, "ignore_eos"), (TryBody, "ignore_eos")}  # in a test of its own


@dataclass(frozen=True)
class Probe:
    """A value that must show, and what stands beside it in both requests: the one with it and the one without."""

    value: Any
    beside: dict[str, Any] = field(default_factory=dict)


SAMPLING = {
    "max_tokens": Probe(3),
    "temperature": Probe(0.0),
    "top_p": Probe(1e-6),
    "top_k": Probe(1),
    "seed": Probe(8),
    "stop": Probe([""]),  # a letter of the answer, once it is known
    "echo": Probe(True),
    "priority": Probe(3),
    "policy": Probe("static"),
    "timeout_s": Probe(1e-6),
}
OPENAI = SAMPLING | {
    "model": Probe("another"),
    "n": Probe(2),
    "presence_penalty": Probe(2.0, REPEATS),
    "frequency_penalty": Probe(2.0, REPEATS),
    "logit_bias": Probe({str(TOKEN): 100}),
    "stream": Probe(True),
    "stream_options": Probe({"include_usage": True}, {"stream": True}),
    "min_p": Probe(1.0),
    "repetition_penalty": Probe(10.0, REPEATS),
    "ignore_eos": Probe(True, LAST_WORD),
    "min_tokens": Probe(5, LAST_WORD),
    "truncate_prompt_tokens": Probe(4),
}
PROBES: dict[type[Body], dict[str, Probe]] = {
    # The native stream's lane is per_token, the others' is static.
    PromptBody: SAMPLING | {"prompt": Probe("something else"), "policy": Probe("continuous")},
    PromptsBody: SAMPLING | {"prompts": Probe(["something else"]), "policy": Probe("continuous")},
    CompletionBody: OPENAI | {"prompt": Probe("something else"), "logprobs": Probe(2)},
    ChatBody: {name: probe for name, probe in OPENAI.items() if name != "echo"}
    | {
        "messages": Probe([{"role": "user", "content": "something else"}]),
        "max_completion_tokens": Probe(3, {"max_tokens": None}),
        "logprobs": Probe(True),
        "top_logprobs": Probe(2, {"logprobs": True}),
    },
    TryBody: {
        "prompts": Probe([{"prompt": "something else", "max_tokens": 12}]),
        "policy": Probe("static"),
        "temperature": Probe(0.0),
        "seed": Probe(8),
        "priority": Probe(3),
        "timeout_s": Probe(1e-6),
    },
    TriedPrompt: {"prompt": Probe("something else"), "max_tokens": Probe(3)},
    StreamOptions: {"include_usage": Probe(True)},
    Message: {"role": Probe("assistant"), "content": Probe("something else"), "name": Probe("Ann")},
    ContentPart: {"type": Probe("image_url"), "text": Probe("something else")},
}
BASE = {"max_tokens": 12, "temperature": 1.0, "seed": 7}
TEXT = "a a a a the the the"
ENDPOINTS: list[tuple[str, type[Body], dict[str, Any]]] = [
    ("/basic_generate", PromptBody, BASE | {"prompt": TEXT}),
    ("/generate_stream", PromptBody, BASE | {"prompt": TEXT}),
    ("/generate", PromptsBody, BASE | {"prompts": [TEXT]}),
    ("/v1/completions", CompletionBody, BASE | {"model": "tiny", "prompt": TEXT}),
    ("/v1/chat/completions", ChatBody, BASE | {"model": "tiny", "messages": [{"role": "user", "content": TEXT}]}),
    ("/try", TryBody, {"prompts": [{"prompt": TEXT, "max_tokens": 12}], "temperature": 1.0, "seed": 7}),
]


def is_undone(kind: type[Body], name: str) -> bool:
    return NotDone() in kind.model_fields[name].metadata


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def asked(cache: Any) -> AsyncIterator[Asked]:
    async with asking(cache) as ready:
        yield ready


# --- nothing is forgotten ------------------------------------------------------------------------
@pytest.mark.parametrize("kind", PROBES, ids=lambda kind: kind.__name__)
def test_every_field_has_a_probe_is_refused_or_says_that_it_has_no_effect(kind: type[Body]) -> None:
    for name, info in kind.model_fields.items():
        if is_undone(kind, name) or (kind, name) in SHOWN_BELOW:
            continue
        if name in NO_EFFECT:
            assert "no effect" in (info.description or ""), name
            continue
        assert name in PROBES[kind], f"{kind.__name__}.{name} is new: what does it change?"
    assert PROBES[kind].keys() <= kind.model_fields.keys(), "a probe of a field that is gone"


def test_every_body_is_walked() -> None:
    """But those of the tokenizer, which hold nothing but what is read; vLLM's has no field of its own but the texts."""
    walked = {*PROBES, DetokenizeBody, VllmBody}
    found = {kind for kind in _bodies(Body) if not kind.__subclasses__()}
    assert {kind.__name__ for kind in found - walked} == {"TokenizeBody"}
    assert set(VllmBody.model_fields) - set(NativeOptions.model_fields) == {"prompts"}


def _bodies(kind: type[Body]) -> set[type[Body]]:
    return {kind}.union(*(_bodies(child) for child in kind.__subclasses__()))


# --- each shows ----------------------------------------------------------------------------------
async def test_each_option_shows_in_the_reply(asked: Asked) -> None:
    """One engine for all: a start costs more than all requests."""
    silent: list[str] = []
    for path, kind, base in ENDPOINTS:
        plain: dict[str, tuple[Any, ...]] = {}  # what is beside the option → what is shown without it
        letter = await _letter_of_the_answer(asked, path, base)
        for name, probe in PROBES[kind].items():
            beside = {key: value for key, value in (base | probe.beside).items() if value is not None}
            if (key := repr(beside)) not in plain:
                plain[key] = await asked.shown(path, beside)
                assert plain[key] == await asked.shown(path, beside), "else a difference would show nothing"
                assert plain[key][0] == 200, (path, name, plain[key])
            value = [letter] if name == "stop" else probe.value
            if await asked.shown(path, beside | {name: value}) == plain[key]:
                silent.append(f"{path}: {name}={value!r}")
    assert silent == [], f"taken and ignored: {silent}"


async def _letter_of_the_answer(asked: Asked, path: str, base: dict[str, Any]) -> str:
    """A letter in the middle of what is answered: to stop there shortens it."""
    text = await _answer(asked, path, base)
    assert len(text) > 2
    return text[len(text) // 2]


async def _answer(asked: Asked, path: str, body: dict[str, Any]) -> str:
    reply = (await asked.shown(path, body))[2]
    if path == "/try":
        return "".join(event["text"] for event in reply if isinstance(event, dict))
    if path == "/generate_stream":
        return "".join(event["token"] for event in reply)
    whole = reply[0]
    if "choices" in whole:
        choice = whole["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])
    return str(whole["generated_text"] if "generated_text" in whole else whole["generated_texts"][0])


async def test_ends_are_put_off_by_the_options_for_it_on_the_native_endpoints_too(asked: Asked) -> None:
    """``ignore_eos`` there: no bias can be given, so a prompt is looked for after which the model ends of itself."""
    for text in (f"{word} {i}" for word in ("a", "the", "so") for i in range(20)):
        prompt = {"prompt": text, "max_tokens": 200}
        without = await _answer(asked, "/basic_generate", prompt)
        with_it = await _answer(asked, "/basic_generate", prompt | {"ignore_eos": True})
        if without != with_it:
            assert with_it.startswith(without)
            assert await _answer(asked, "/try", {"prompts": [prompt]}) == without
            assert await _answer(asked, "/try", {"prompts": [prompt], "ignore_eos": True}) == with_it
            return
    raise AssertionError("the model never ends of itself: the test shows nothing")


# --- within messages and options -----------------------------------------------------------------
async def test_each_field_of_a_prompt_to_try_shows(asked: Asked) -> None:
    plain = {"prompt": TEXT, "max_tokens": 12}
    shown = await asked.shown("/try", {"prompts": [plain]})
    assert shown[0] == 200
    for name, probe in PROBES[TriedPrompt].items():
        assert await asked.shown("/try", {"prompts": [plain | {name: probe.value}]}) != shown, name


async def test_each_field_of_a_message_shows(asked: Asked) -> None:
    path, _, base = ENDPOINTS[4]
    for kind, whole in ((Message, {"role": "user", "content": TEXT}), (ContentPart, {"type": "text", "text": TEXT})):
        plain = await asked.shown(path, base | {"messages": [_message(kind, whole)]})
        assert plain[0] == 200
        for name, probe in PROBES[kind].items():
            if name == "name":
                continue  # below: a template may leave it out
            changed = await asked.shown(path, base | {"messages": [_message(kind, whole | {name: probe.value})]})
            assert changed != plain, f"{kind.__name__}.{name}"


def _message(kind: type[Body], whole: dict[str, Any]) -> dict[str, Any]:
    return whole if kind is Message else {"role": "user", "content": [whole]}


async def test_the_usage_chunk_comes_only_where_it_is_asked_for(asked: Asked) -> None:
    path, _, base = ENDPOINTS[3]
    counted = []
    for wanted in (False, True):
        reply = await asked.http.post(path, json=base | {"stream": True, "stream_options": {"include_usage": wanted}})
        counted.append(sum(not chunk["choices"] for chunk in chunks(reply.text)))
    assert counted == [0, 1]


# --- the rest is refused -------------------------------------------------------------------------
async def test_each_option_that_is_not_done_is_refused_by_its_name(asked: Asked) -> None:
    for path, kind, base in ENDPOINTS:
        for name in kind.model_fields:
            if is_undone(kind, name):
                reply = await asked.http.post(path, json=base | {name: [{"x": 1}]})
                assert (reply.status_code, reply.json()["error"]["param"]) == (400, name)
    path, _, base = ENDPOINTS[4]
    for kind, whole in ((Message, {"role": "user", "content": TEXT}), (ContentPart, {"type": "text", "text": TEXT})):
        for name in (name for name in kind.model_fields if is_undone(kind, name)):
            messages = [_message(kind, whole | {name: [{"x": 1}]})]
            error = (await asked.http.post(path, json=base | {"messages": messages})).json()["error"]
            assert error["param"].startswith("messages.0.")
            assert error["param"].endswith(f".{name}")


async def test_an_unknown_field_is_refused_by_its_name_everywhere(asked: Asked) -> None:
    for path, _, base in ENDPOINTS:
        reply = await asked.http.post(path, json=base | {"best_off": 2})
        assert reply.status_code == (400 if path.startswith("/v1/") else 422)
        assert reply.json()["error"]["param"] == "best_off"
