"""Chat templates: messages to one text.

Owns the sandbox that renders (Jinja2, set up as Hugging Face documents it).  Ignorant of ids, control tokens and
clocks: a template that asks for the time gets it from the caller, or doesn't see that it could ask.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols

from everystep.errors import InvalidParameter, InvalidRequest, ModelError
from everystep.text.chat_messages import flatten_content as flatten_content
from everystep.text.template_bounds import BoundedEnvironment, with_budget

MAX_WORDS = 500  # characters of a template's own words in an error


class ChatTemplate:
    """A compiled template.  Raises :class:`ModelError` if it can't be compiled."""

    def __init__(self, source: str, names: Mapping[str, str | None]) -> None:
        """``names``: tokens that the template may write, by the name it has for them."""
        environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
        environment.add_filter("tojson", _to_json)
        environment.globals["raise_exception"] = _refuse
        self._names = {name: text for name, text in names.items() if text is not None}
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # a program that came with the model: compiling it may fail in any way
            raise ModelError(f"the model's chat template can't be compiled: {_words(error)}") from error

    def render(self, args: Mapping[str, Any], *, now: datetime | None = None) -> str:
        """Raises :class:`InvalidParameter` with the template's words if it refuses the messages.

        What it does is bounded: see :mod:`everystep.text.template_bounds`.
        """
        clock = {} if now is None else {"strftime_now": now.strftime}
        try:
            return with_budget(lambda: self._template.render({**self._names, **clock, **args}))
        except _Refusal as error:
            raise InvalidParameter(_words(error), param="messages") from error
        except SecurityError as error:
            words = f"the model's chat template leaves its sandbox ({_words(error)}); use /v1/completions"
            raise InvalidRequest(words, param="messages") from error
        except Exception as error:  # a template is a program that came with the model: it may fail in any way
            words = f"the chat template can't render the messages: {_words(error)}"
            raise InvalidParameter(words, param="messages") from error


class _Refusal(jinja2.TemplateError):
    """The template called ``raise_exception``."""


class GenerationTag(Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's part for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - Jinja2's own interface

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; Jinja2's own filter would escape it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _words(error: Exception) -> str:
    """On one line: a template may raise whatever it likes."""
    return " ".join((str(error) or type(error).__name__)[:MAX_WORDS].split())


def _refuse(message: str) -> None:
    raise _Refusal(message)
