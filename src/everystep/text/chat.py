"""Chat templates: messages to one text, in which only the template places control tokens.

Owns the sandbox that renders (Jinja2, set up as Hugging Face documents it) and the guard that keeps a message's text
from becoming control tokens.  Ignorant of token ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from everystep.errors import InvalidParameter, ModelError, UnsupportedOption

ChatMessage = Mapping[str, Any]
PRIVATE_USE = range(0xE000, 0xF900)  # characters without a meaning of their own


class ChatTemplate:
    """A compiled template.  Raises :class:`ModelError` if it can't be compiled."""

    def __init__(self, source: str, names: Mapping[str, str | None]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self._names = {name: value or "" for name, value in names.items()}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(f"the model's chat template can't be compiled: {error}") from error

    def render(self, messages: Sequence[ChatMessage], **args: Any) -> str:
        """Raises :class:`InvalidParameter` with the template's words if it refuses the messages."""
        try:
            return self._template.render(messages=messages, **self._names, **args)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidParameter(f"the chat template refuses the messages: {error}", param="messages") from error


def flatten_content(content: Any) -> str:
    """A message's content as text: a string, or parts that are all text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise UnsupportedOption(
                f"content of type {part.get('type')!r} isn't supported; only 'text' is", param="messages"
            )
        texts.append(part["text"])
    return "".join(texts)


class GenerationTag(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}`` marks the assistant's part for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - Jinja2's own interface

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


# --- the guard -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the rendered text: a control token that the template placed, or plain text."""

    text: str
    is_control: bool


class Guard:
    """Breaks control tokens inside messages by a mark, which is taken out again once the text is cut in pieces."""

    def __init__(self, mark: str, control_texts: Sequence[str], *, is_needed: bool) -> None:
        self.is_needed = is_needed
        self._mark = mark
        self._controls = tuple(control_texts)
        self._pattern = re.compile("|".join(map(re.escape, control_texts)) or r"(?!)")

    def apply(self, value: Any) -> Any:
        """``value`` with the text of every string in it broken where needed."""
        if not self.is_needed:
            return value
        if isinstance(value, str):
            return self._break(value)
        if isinstance(value, Mapping):
            return {key: self.apply(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(item) for item in value]
        return value

    def split(self, text: str) -> Iterator[Piece]:
        """The rendered text, cut at the control tokens that are whole in it."""
        at = 0
        for match in self._pattern.finditer(text):
            if match.start() > at:
                yield Piece(self._unmark(text[at : match.start()]), is_control=False)
            yield Piece(match.group(), is_control=True)
            at = match.end()
        if at < len(text):
            yield Piece(self._unmark(text[at:]), is_control=False)

    def _break(self, text: str) -> str:
        """A mark behind the first character of each control token, and of what the template could complete to one."""
        text = self._pattern.sub(lambda match: match.group()[0] + self._mark + match.group()[1:], text)
        for length in range(_longest_overlap_end(text, self._controls), 0, -1):
            if any(control.startswith(text[-length:]) for control in self._controls):
                cut = len(text) - length + 1
                text = text[:cut] + self._mark + text[cut:]
                break
        for length in range(_longest_overlap_end(text, self._controls), 0, -1):
            if any(control.endswith(text[:length]) for control in self._controls):
                return text[: length - 1] + self._mark + text[length - 1 :]
        return text

    def _unmark(self, text: str) -> str:
        return text.replace(self._mark, "")


def guard_controls(values: Sequence[Any], control_texts: Sequence[str]) -> Guard:
    """A guard for these messages.  Not needed where no text holds, begins or ends a control token."""
    strings = [string for value in values for string in _strings(value)]
    used = set().union(*strings) if strings else set()
    mark = next(chr(code) for code in PRIVATE_USE if chr(code) not in used)
    return Guard(mark, control_texts, is_needed=any(_is_risky(string, control_texts) for string in strings))


def _is_risky(text: str, controls: Sequence[str]) -> bool:
    """Whether text holds a control token, or has one's begin at its end or one's end at its begin."""
    for control in controls:
        if control in text:
            return True
        if any(text.endswith(control[:i]) or text.startswith(control[-i:]) for i in range(1, len(control))):
            return True
    return False


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _longest_overlap_end(text: str, controls: Sequence[str]) -> int:
    return min(len(text), max(map(len, controls), default=1) - 1)
