"""Typed reading of a JSON object's fields, with errors that name file, field and value.

Owns :class:`Fields`.  Ignorant of what the fields mean.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from everystep.errors import ModelError

Item = TypeVar("Item", str, int, float)
MAX_SHOWN = 60  # characters of a bad value in a message
MAX_COUNT = 2**31 - 1  # of anything in a model; what is larger doesn't fit into the runners' numbers either
MAX_TEXT_BYTES = 2**28  # of a JSON or text file: ten times the largest tokenizer
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # an escaped half of a character, with or without its other half


class Fields:
    """A JSON object whose ``null`` counts as absent, as Hugging Face's configurations mean it."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self._values = values
        self.source = source

    def raw(self, key: str) -> Any:
        return self._values.get(key)

    def as_dict(self) -> dict[str, Any]:
        return dict(self._values)

    def has(self, key: str) -> bool:
        """Whether the key is there at all, ``null`` included."""
        return key in self._values

    def count(self, key: str, default: int | None = None, *, at_least: int = 1) -> int:
        """A whole number of at least 1, or of what is said."""
        value = self._or_default(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= MAX_COUNT:
            raise self.bad(key, f"a whole number from {at_least} to {MAX_COUNT}")
        return value

    def number(self, key: str, default: float | None = None, *, at_least: float | None = None) -> float:
        value = self._or_default(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(key, "a number")
        if not is_finite(value):
            raise self.bad(key, "a finite number")
        if at_least is not None and value < at_least:
            raise self.bad(key, f"a number of at least {at_least:g}")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """A number above 0: what is divided by, or raised to a power."""
        value = self.number(key, default)
        if value <= 0:
            raise self.bad(key, "a number above 0")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._or_default(key, default)
        if not isinstance(value, bool):
            raise self.bad(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._or_default(key, default)
        if not isinstance(value, str):
            raise self.bad(key, "a string")
        return value

    def array(self, key: str, kind: type[Item]) -> list[Item]:
        """The array at ``key``, all of one kind; an empty one if absent."""
        value = self._or_default(key, [])
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self.bad(key, f"an array of {kind.__name__}")
        return value

    def object(self, key: str) -> Fields:
        """The object at ``key``; an empty one if absent."""
        value = self._or_default(key, {})
        if not isinstance(value, dict):
            raise self.bad(key, "an object")
        return Fields(value, f"{self.source}: {key}")

    def bad(self, key: str, wanted: str) -> ModelError:
        if self._values.get(key) is None:
            return ModelError(f"{self.source} has no {key}")
        return ModelError(f"{self.source}: {key} is {shown(self._values[key])}, not {wanted}")

    def _or_default(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        return default if value is None else value


def shown(value: Any) -> str:
    """A bad value as a message shows it: its begin."""
    text = repr(value[: MAX_SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def is_finite(value: float) -> bool:
    """JSON's whole numbers have no bound; one that no float holds is as good as infinite."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def read_text(path: Path) -> str:
    """A text file.  Raises :class:`ModelError` if it is absent, no regular file, huge, or no UTF-8.

    What is no regular file isn't opened: a pipe would wait for a writer for ever.
    """
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ModelError(f"{path} is no regular file")
        if facts.st_size > MAX_TEXT_BYTES:
            raise ModelError(f"{path} has {facts.st_size} bytes; at most {MAX_TEXT_BYTES} are read of such a file")
        return path.read_text("utf-8")
    except FileNotFoundError as error:
        raise ModelError(f"{path} doesn't exist") from error
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is corrupt: it is no UTF-8 ({error.reason} at byte {error.start})") from error


def read_text_if_there(path: Path) -> str | None:
    """As :func:`read_text`, but ``None`` for an absent file.  A link that leads nowhere is there, and can't be read."""
    return read_text(path) if path.is_symlink() or path.exists() else None


def read_fields(path: Path) -> Fields:
    """The JSON object in a file.  Raises :class:`ModelError` if it is absent, can't be read, or is no object."""
    return _parse(read_text(path), path)


def read_fields_if_there(path: Path) -> Fields:
    """As :func:`read_fields`, but an absent file counts as an empty object."""
    text = read_text_if_there(path)
    return Fields({}, str(path)) if text is None else _parse(text, path)


def _parse(text: str, path: Path) -> Fields:
    try:
        values = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(values, ensure_ascii=False).encode()  # half a character can't be written, printed or tokenised
    except UnicodeEncodeError as error:
        raise ModelError(f"{path} isn't valid JSON: it holds half a character (a lone surrogate)") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} isn't valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} isn't a JSON object")
    return Fields(values, str(path))
