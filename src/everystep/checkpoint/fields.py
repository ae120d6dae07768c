"""Typed reading of a JSON object's fields, with errors that name file, field and value.

Owns :class:`Fields`.  Ignorant of what the fields mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from everystep.errors import ModelError

Item = TypeVar("Item", str, int, float)
MAX_SHOWN = 60  # characters of a bad value in a message


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
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            raise self.bad(key, f"a whole number of at least {at_least}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._or_default(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.bad(key, "a number")
        if not math.isfinite(value):
            raise self.bad(key, "a finite number")
        return float(value)

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
        shown = repr(self._values[key])
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"
        return ModelError(f"{self.source}: {key} is {shown}, not {wanted}")

    def _or_default(self, key: str, default: Any) -> Any:
        value = self._values.get(key)
        return default if value is None else value


def read_fields(path: Path) -> Fields:
    """The JSON object in a file.  Raises :class:`ModelError` if it is absent, can't be read, or is no object."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ModelError(f"{path} doesn't exist") from error
    except OSError as error:
        raise ModelError(f"can't read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} isn't valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{path} isn't a JSON object")
    return Fields(values, str(path))


def read_fields_if_there(path: Path) -> Fields:
    """As :func:`read_fields`, but an absent file counts as an empty object."""
    return read_fields(path) if path.is_file() else Fields({}, str(path))
