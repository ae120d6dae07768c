"""However many faults a body has, it is refused at the first: the event loop isn't held up by a list of complaints.

The models are found, not named, so that a new one is looked at too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

import everystep.api  # noqa: F401  # so that every body is defined
from api.harness import Server
from everystep.api.first_fault import MAX_MESSAGES, MAX_PARTS
from everystep.api.native_bodies import Body
from everystep.api.openai_bodies import ChatBody

NUM_FAULTS = 2_000
WRONG_VALUES = {
    "a list of wrong items": [object()] * NUM_FAULTS,
    "a list of lists of wrong items": [[object()] * NUM_FAULTS],
    "a mapping of wrong values": {str(i): object() for i in range(NUM_FAULTS)},
    "a list of empty objects": [{}] * NUM_FAULTS,
}


def all_bodies(kind: type[Body] = Body) -> Iterator[type[Body]]:
    for body in kind.__subclasses__():
        yield body
        yield from all_bodies(body)


BODIES = sorted(set(all_bodies()), key=lambda body: body.__name__)


def num_complaints(kind: type[Body], data: object) -> int:
    try:
        kind.model_validate(data)
    except ValidationError as error:
        return error.error_count()
    return 0


def test_the_bodies_were_found() -> None:
    assert {"PromptsBody", "CompletionBody", "ChatBody", "Message", "ContentPart", "DetokenizeBody"} <= {
        body.__name__ for body in BODIES
    }


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_of_thousands_of_unknown_fields_one_is_complained_of(body: type[Body]) -> None:
    nonsense = {f"nonsense_{i}": 1 for i in range(NUM_FAULTS)}
    with pytest.raises(ValidationError) as refused:
        body.model_validate(nonsense)
    kinds = [complaint["type"] for complaint in refused.value.errors()]
    assert kinds.count("extra_forbidden") == 1
    assert len(kinds) <= len(body.model_fields) + 1, "beside it only what is missing"


@pytest.mark.parametrize("wrong", WRONG_VALUES)
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_of_thousands_of_wrong_items_few_are_complained_of(body: type[Body], wrong: str) -> None:
    missing = num_complaints(body, {})
    for name in body.model_fields:
        assert num_complaints(body, {name: WRONG_VALUES[wrong]}) <= missing + 8, name


def test_messages_and_their_parts_are_counted_before_they_are_looked_at() -> None:
    message = {"role": "user", "content": "x"}
    parts = [{"type": "text", "text": "x"}] * (MAX_PARTS // 2 + 1)
    whole = {"model": "tiny", "messages": [message] * MAX_MESSAGES}
    assert len(ChatBody.model_validate(whole).messages) == MAX_MESSAGES
    with pytest.raises(ValidationError, match=f"at most {MAX_MESSAGES}"):
        ChatBody.model_validate({**whole, "messages": [message] * (MAX_MESSAGES + 1)})
    with pytest.raises(ValidationError, match=f"at most {MAX_PARTS}"):
        ChatBody.model_validate({**whole, "messages": [{"role": "user", "content": parts}] * 2})


async def test_the_first_of_many_faults_is_named_with_its_place(server: Server) -> None:
    reply = await server.post("/generate", prompts=["x", 1, *[2] * NUM_FAULTS])
    assert (reply.status_code, reply.json()["error"]["param"]) == (422, "prompts.1")
    reply = await server.post("/generate", prompts=["x"], **{f"nonsense_{i}": 1 for i in range(NUM_FAULTS)})
    assert reply.json()["error"]["message"] == "unknown field 'nonsense_0'"
    reply = await server.complete("x", logit_bias={"7": 1, "8": [], **{str(i): "" for i in range(100, NUM_FAULTS)}})
    assert reply.json()["error"]["param"] == "logit_bias.8"
