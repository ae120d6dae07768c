"""A wrong body is refused at its first fault: what a complaint costs doesn't grow with the number of faults.

Owns the bounds of what is validated.  A body of 8 MiB has room for four million wrong items or 800,000 unknown fields;
a complaint of each would hold up the event loop, and with it every neighbour's stream, for a minute and a half.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated

from pydantic import BeforeValidator, FailFast

MAX_MESSAGES = 10_000  # more than a context of a hundred thousand tokens has room for
MAX_PARTS = 10_000  # in all messages of a request together


class AtFirst(FailFast):
    """For lists: the first wrong item ends the validation.  One may stand in a union, so it has a hash."""

    __hash__ = object.__hash__


def only_first_unknown(data: object, known: Iterable[str]) -> object:
    """Of a body with more fields than there are, those that are known and one that isn't: that one is complained of."""
    names = dict.fromkeys(known)
    if not isinstance(data, dict) or len(data) <= len(names):
        return data
    kept = {name: data[name] for name in names if name in data}
    return kept | dict(islice(((name, value) for name, value in data.items() if name not in names), 1))


def check_num_parts(messages: object) -> object:
    """Raise ``ValueError`` for more parts of content than a request may have, before any of them is looked at."""
    if isinstance(messages, list):
        contents = (message.get("content") for message in messages if isinstance(message, dict))
        num_parts = sum(len(content) for content in contents if isinstance(content, list))
        if num_parts > MAX_PARTS:
            raise ValueError(f"{num_parts} parts of content; at most {MAX_PARTS} are read")
    return messages


def _only_first_wrong(data: object) -> object:
    if isinstance(data, dict):
        for name, value in data.items():
            if type(value) not in (int, float):
                return {name: value}
    return data


TokenBiases = Annotated[dict[str, float], BeforeValidator(_only_first_wrong)]
Texts = Annotated[list[str], AtFirst()]
TokenIds = Annotated[list[int], AtFirst()]
