"""What a round adds to a model's forward passes, and takes away again: a look at the logits, a bound on positions.

Owns the hooks.  Ignorant of rounds: what the logits are wanted for, and that only rows that have ended reach the bound,
the caller knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

Args = tuple[object, ...]
Kwargs = dict[str, Any]


@contextmanager
def logits_shown(model: Any, see: Callable[[Tensor], None]) -> Iterator[None]:
    """Inside, ``see`` gets each pass's last logits ``[rows, vocab]``, to read only."""

    def show(module: object, args: Args, output: Any) -> None:
        see(output.logits[:, -1])

    handle = model.register_forward_hook(show)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def positions_below(limit: int, model: Any) -> Iterator[None]:
    """Inside, position ids from ``limit`` on become ``limit - 1``: a table of learned positions has no more rows."""

    def clamp(module: object, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        position_ids = kwargs.get("position_ids")
        if position_ids is None:
            return args, kwargs
        return args, {**kwargs, "position_ids": position_ids.clamp(max=limit - 1)}

    handle = model.register_forward_pre_hook(clamp, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
