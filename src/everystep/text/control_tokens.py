"""The guard that keeps a message's text from becoming control tokens once a template has rendered it.

Owns the marks that break control tokens inside messages, and the cut of the rendered text at those that are whole.
Ignorant of templates, and of how text becomes ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken

PRIVATE_USE = range(0xE000, 0xF900)  # characters without a meaning of their own


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the rendered text: a control token that the template placed (its id), or plain text."""

    text: str
    control_id: int | None = None


class ControlTokens:
    """A model's control tokens, and where they are in a text."""

    def __init__(self, tokens: Mapping[int, AddedToken]) -> None:
        self._tokens = {token.content: (token_id, token) for token_id, token in tokens.items()}
        pattern = _pattern(set(self._tokens))
        self._begins = re.compile(f"(?={pattern})")
        self._whole = re.compile(pattern)
        self._edges = _EdgeIndex(list(self._tokens))

    def breaks(self, text: str) -> set[int]:
        """Where a mark must stand so that no control token in ``text``, or completed at its edges, stays whole.

        The edges are those that a template's ``trim`` leaves.
        """
        places = {match.start() + 1 for match in self._begins.finditer(text)}
        begin, end = len(text) - len(text.lstrip()), len(text.rstrip())
        num_begun = self._edges.num_begun(text[begin:end])
        num_ended = self._edges.num_ended(text[begin:end])
        if num_begun:
            places.add(end - num_begun + 1)
        if num_ended:
            places.add(begin + num_ended - 1)
        return places

    def cut(self, text: str, mark: str) -> Iterator[Segment]:
        """The rendered text, cut at the control tokens that are whole in it; marks gone."""
        at = 0
        for match in self._whole.finditer(text):
            token_id, token = self._tokens[match.group()]
            if token.single_word and _is_inside_word(text, match.start(), match.end()):
                continue
            before = text[at : match.start()]
            plain = _unmarked(before.rstrip() if token.lstrip else before, mark)
            if plain:
                yield Segment(plain)
            yield Segment(token.content, token_id)
            at = _end_of_spaces(text, match.end()) if token.rstrip else match.end()
        if at < len(text):
            yield Segment(_unmarked(text[at:], mark))


class _EdgeIndex:
    """Finds a text's edge that is a part of a control token."""

    def __init__(self, texts: list[str]) -> None:
        self._heads = {text[:i] for text in texts for i in range(1, len(text))}
        self._tails = {text[i:] for text in texts for i in range(1, len(text))}
        self._longest = max(map(len, texts), default=1) - 1

    def num_begun(self, text: str) -> int:
        """Characters of the longest end of ``text`` that begins a control token."""
        lengths = range(min(self._longest, len(text)), 0, -1)
        return next((n for n in lengths if text[-n:] in self._heads), 0)

    def num_ended(self, text: str) -> int:
        """Characters of the longest begin of ``text`` that ends a control token."""
        lengths = range(min(self._longest, len(text)), 0, -1)
        return next((n for n in lengths if text[:n] in self._tails), 0)


class Guard:
    """Marks the texts of one chat.  ``is_used`` tells afterwards whether any mark was needed."""

    def __init__(self, controls: ControlTokens, values: list[Any]) -> None:
        texts = [text for value in values for text in _texts(value)]
        self.mark = next(mark for mark in map(chr, PRIVATE_USE) if not _occurs(mark, texts))
        self.is_used = False
        self._controls = controls

    def apply(self, value: Any) -> Any:
        """``value`` with every string in it, keys too, broken where needed."""
        if isinstance(value, str):
            return self._break(value)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(item) for item in value]
        return value

    def _break(self, text: str) -> str:
        places = sorted(self._controls.breaks(text))
        if not places:
            return text
        self.is_used = True
        edges = zip([0, *places], [*places, len(text)], strict=True)
        return self.mark.join(text[begin:end] for begin, end in edges)


def _pattern(texts: set[str]) -> str:
    """Finds the longest of ``texts``.  They share their begins: a model may have hundreds that begin alike, and to try
    each at every ``<`` of a hostile megabyte takes minutes."""
    if not texts:
        return r"(?!)"
    first, last = min(texts), max(texts)
    num_shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    shared = first[:num_shared]
    rests = {text[len(shared) :] for text in texts}
    branches = [{rest for rest in rests if rest[0:1] == char} for char in sorted({rest[0] for rest in rests if rest})]
    if not branches:
        return re.escape(shared)
    may_end = "?" if "" in rests else ""
    return f"{re.escape(shared)}(?:{'|'.join(map(_pattern, branches))}){may_end}"


def _is_inside_word(text: str, begin: int, end: int) -> bool:
    return re.match(r"\w", text[end : end + 1]) is not None or re.match(r"\w", text[begin - 1 : begin]) is not None


def _end_of_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _escape(mark: str) -> str:
    """How JSON writes the mark where a template wants ASCII."""
    return f"\\u{ord(mark):04x}"


def _unmarked(text: str, mark: str) -> str:
    return text.replace(mark, "").replace(_escape(mark), "")


def _occurs(mark: str, texts: list[str]) -> bool:
    return any(mark in text or _escape(mark) in text for text in texts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
