"""Command-line flags made from the fields of :class:`~everystep.config.Settings`.

Owns how a field's type becomes a flag.  A field that is added there has its flag without a line here.  Ignorant of what
the commands do with the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click
from pydantic import SecretStr

from everystep.api_keys import HashedKey
from everystep.config import Settings
from everystep.settings_sources import flag_name, is_list, is_switch

Command = TypeVar("Command", bound=Callable[..., Any])

METAVARS: dict[object, str] = {
    int: "N", float: "F", Path: "PATH", str: "TEXT", HashedKey: "KEY", SecretStr: "KEY"
}  # fmt: skip


class KeyType(click.ParamType[HashedKey | SecretStr]):
    """A key, out of sight as soon as it is read: the command line's parts live as long as the command."""

    name = "key"

    def __init__(self, hide: Callable[[str], HashedKey | SecretStr]) -> None:
        self._hide = hide

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> HashedKey | SecretStr:
        try:
            return self._hide(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, context)


CLICK_TYPES: dict[object, Any] = {
    Path: click.Path(path_type=Path), HashedKey: KeyType(HashedKey), SecretStr: KeyType(SecretStr)
}  # fmt: skip


def setting_flags(fields: Iterable[str]) -> Callable[[Command], Command]:
    """A flag per field, as one decorator.  A flag that wasn't given arrives as ``None`` (a list as ``()``)."""

    def decorate(command: Command) -> Command:
        for field in reversed(list(fields)):
            command = flag(field)(command)
        return command

    return decorate


def given_flags(values: Mapping[str, object]) -> dict[str, object]:
    """Of a command's arguments, the settings that somebody gave."""
    return {name: value for name, value in values.items() if name in Settings.model_fields and value not in (None, ())}


def flag(field: str) -> Callable[[Command], Command]:
    """The flag of one field: a pair ``--x/--no-x`` for a switch, a choice for a literal, repeatable for a list."""
    help_text = help_of(field)
    if is_switch(field):
        pair = f"{flag_name(field)}/{flag_name('no_' + field)}"
        return click.option(pair, field, default=None, help=help_text)
    kind = value_type(Settings.model_fields[field].annotation)
    if get_origin(kind) is Literal:
        return click.option(flag_name(field), field, type=click.Choice(get_args(kind)), default=None, help=help_text)
    return click.option(
        flag_name(field),
        field,
        type=CLICK_TYPES.get(kind, kind),
        multiple=is_list(field),
        default=None,
        metavar=METAVARS[kind],
        help=help_text,
    )


def help_of(field: str) -> str:
    """The field's description with its default, where the description doesn't say it."""
    info = Settings.model_fields[field]
    words = info.description or ""
    return f"{words}  [default: {default_text(field)}]" if default_text(field) else words


def default_text(field: str) -> str:
    """The default as one would type it; empty where there is none."""
    default = Settings.model_fields[field].default
    if default in (None, ()):
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"{default:g}" if isinstance(default, float) else str(default)


def value_type(annotation: Any) -> Any:
    """The bare type in a field's annotation: without ``None``, without its range, an item's for a tuple."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return value_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        (kind,) = (part for part in get_args(annotation) if part is not NoneType)
        return value_type(kind)
    if origin is tuple:
        return value_type(get_args(annotation)[0])
    return annotation
