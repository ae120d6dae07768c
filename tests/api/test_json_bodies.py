"""The bound of what a body may hold: counted before anything is made of it, and only outside of texts."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from api.harness import Server
from everystep.api.json_bodies import MAX_CONTAINERS, num_containers

texts = st.text(alphabet='ab"\\[]{},:é\n', max_size=12)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def counted(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(counted, value.values()))
    return 1 + sum(map(counted, value)) if isinstance(value, list) else 0


@given(values, st.sampled_from([None, 1]), st.booleans())
def test_lists_and_objects_are_counted_and_brackets_in_texts_are_not(
    value: object, indent: int | None, is_ascii: bool
) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    assert num_containers(body) == counted(value)


async def test_a_body_of_too_many_lists_is_refused_in_our_shape_and_one_of_as_many_brackets_is_read(
    server: Server,
) -> None:
    for path in ("/generate", "/v1/completions", "/tokenize"):
        body = b'{"prompt": ' + b"[" + b"[]," * MAX_CONTAINERS + b"[]]}"
        reply = await server.http.post(path, content=body, headers={"content-type": "application/json"})
        is_openai = path.startswith("/v1/")
        assert reply.status_code == (400 if is_openai else 422)
        assert reply.json()["error"] | {"code": ""} == {
            "type": "invalid_request" if is_openai else "malformed_body",
            "message": f"the body has {MAX_CONTAINERS + 3} lists and objects; at most {MAX_CONTAINERS} are read",
            "param": None,
            "code": "",
        }
    reply = await server.post("/tokenize", prompt="[" * (MAX_CONTAINERS + 1))
    assert "lists and objects" not in reply.text


async def test_a_list_of_ids_is_echoed_as_text_only_where_it_is_wanted(server: Server) -> None:
    server.runner.say("hello", " there")
    ids = (await server.post("/tokenize", prompt="hello")).json()["tokens"]
    for echo, text in ((True, "hello there"), (False, " there")):
        reply = await server.complete(ids, echo=echo, temperature=0)
        assert reply.json()["choices"][0]["text"] == text


async def test_a_chat_that_no_reading_fits_into_the_context_is_refused_unread(server: Server) -> None:
    longest = server.engine.max_model_len * server.engine.tokenizer.max_token_bytes
    messages = [{"role": "user", "content": "a " * (longest // 2)}, {"role": "user", "content": "bc"}]
    reply = await server.post("/v1/chat/completions", model="tiny", messages=messages)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "prompt_too_long")
    assert f"has {longest + 2} characters" in reply.json()["error"]["message"]
