"""A bound on the positions that a model is given, for as long as a round needs it.

Owns the hook.  Ignorant of rounds: that only rows that have ended reach the bound, the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def positions_below(limit: int, model: Any) -> Iterator[None]:
    """Inside, position ids from ``limit`` on become ``limit - 1``: a table of learned positions has no more rows."""

    def clamp(
        module: object, args: tuple[object, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[object, ...], dict[str, Any]]:
        position_ids = kwargs.get("position_ids")
        if position_ids is None:
            return args, kwargs
        return args, {**kwargs, "position_ids": position_ids.clamp(max=limit - 1)}

    handle = model.register_forward_pre_hook(clamp, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
