"""Where settings come from: flags before variables before the TOML file before the defaults.

Owns the three spellings of a setting's name (``--max-num-seqs``, ``EVERYSTEP_MAX_NUM_SEQS``, ``max_num_seqs``), all
derived from the fields of :class:`~everystep.config.Settings`, and the one line that says what is wrong and where it
was said.  Ignorant of command-line libraries.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from everystep.api_keys import MAX_KEYS, check_key, read_key_file
from everystep.config import SECRETS, Settings
from everystep.errors import ConfigError

ENV_PREFIX = "EVERYSTEP_"
CONFIG_VARIABLE = "EVERYSTEP_CONFIG"


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, and where: ``--port``, ``EVERYSTEP_PORT``, ``port in everystep.toml``."""

    value: object = field(repr=False)  # it may be a key
    where: str


def flag_name(field: str) -> str:
    """The flag of a field: ``--max-num-seqs``."""
    return "--" + field.replace("_", "-")


def variable_name(field: str) -> str:
    """The environment variable of a field: ``EVERYSTEP_MAX_NUM_SEQS``."""
    return ENV_PREFIX + field.upper()


def is_switch(field: str) -> bool:
    """Whether a field is on or off; such a field may be given as its opposite, ``no_<field>``, too."""
    return Settings.model_fields[field].annotation is bool


def is_list(field: str) -> bool:
    """Whether a field takes several values."""
    return isinstance(Settings.model_fields[field].default, tuple)


def load_settings(
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    """One settings object from all sources.  Raises :class:`ConfigError` naming the source and the limit.

    ``flags`` are fields by name, only those that were given.  ``config`` is the TOML file; without it the one that
    ``EVERYSTEP_CONFIG`` in ``environ`` names.
    """
    environ = environ or {}
    if config is None and environ.get(CONFIG_VARIABLE):
        config = Path(environ[CONFIG_VARIABLE])
    given: dict[str, Given] = {}
    if config is not None:
        given |= read_toml(config)
    given |= read_environment(environ)
    given |= {field: Given(value, flag_name(field)) for field, value in (flags or {}).items()}
    return _settings(given)


def with_file_keys(settings: Settings) -> Settings:
    """The same with the keys of ``api_key_file`` among ``api_key``, whoever gave the settings.

    The file is read here and never again, so that a pipe will do.  Raises :class:`ConfigError`.
    """
    if settings.api_key_file is None:
        return settings
    keys = (*settings.api_key, *read_key_file(settings.api_key_file))
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"{len(keys)} API keys are over the limit of {MAX_KEYS}", param="api_key_file")
    return settings.model_copy(update={"api_key": keys, "api_key_file": None})


def client_keys(flags: Sequence[SecretStr], environ: Mapping[str, str]) -> tuple[SecretStr, ...]:
    """The keys that a client of ours sends: those of flags, else those of ``EVERYSTEP_API_KEY``.

    Raises :class:`ConfigError` for what can't be sent.
    """
    text = environ.get(variable_name("api_key"), "")
    keys = tuple(flags) or tuple(SecretStr(part.strip()) for part in text.split(",") if text)
    try:
        for key in keys:
            check_key(key.get_secret_value())
    except ValueError as error:
        raise ConfigError(f"{flag_name('api_key')}: {error}", param="api_key") from None
    return keys


def forget_secrets(environ: MutableMapping[str, str]) -> None:
    """Drop the keys from the environment, once they are read: a process that is started would inherit them."""
    for name in SECRETS:
        environ.pop(variable_name(name), None)


def read_toml(path: Path) -> dict[str, Given]:
    """The file's keys as fields.  Unknown keys and tables are refused."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}", param="config") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise ConfigError(f"{path} isn't TOML: {error}", param="config") from error
    entries = ((key, value, f"{key} in {path.name}") for key, value in table.items())
    return _collect(entries)


def read_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """The ``EVERYSTEP_*`` variables as fields.  Unknown and empty ones are refused: an empty key is no key."""
    entries = []
    for name, text in environ.items():
        if not name.startswith(ENV_PREFIX) or name == CONFIG_VARIABLE:
            continue
        if not text.strip():
            raise ConfigError(f"{name} is empty: unset it, or give it a value", param=name)
        if text.startswith("tcp://"):  # a service named "everystep" makes Kubernetes set EVERYSTEP_PORT
            raise ConfigError(f"{name} is a Kubernetes service link: set enableServiceLinks: false", param=name)
        entries.append((name.removeprefix(ENV_PREFIX).lower(), text, name))
    return _collect(entries)


def _collect(entries: Iterable[tuple[str, Any, str]]) -> dict[str, Given]:
    """Entries of one source, by field.  The same field twice is refused: nobody could tell which was meant."""
    given: dict[str, Given] = {}
    for key, value, where in entries:
        field, value = _resolve(key, value, where)
        if field in given:
            raise ConfigError(f"{given[field].where} and {where} say the same twice", param=field)
        given[field] = Given(value, where)
    return given


def _resolve(key: str, value: Any, where: str) -> tuple[str, Any]:
    """The field that a key means and its value as the field takes it."""
    name = key.replace("-", "_")
    positive = name.removeprefix("no_")
    if name not in Settings.model_fields and positive in Settings.model_fields and is_switch(positive):
        return positive, not _as_switch(value, where)
    if name not in Settings.model_fields:
        raise ConfigError(f"{where}: no such setting{suggestion(name, Settings.model_fields)}", param=name)
    if is_switch(name):
        return name, _as_switch(value, where)
    if isinstance(value, bool):
        raise ConfigError(f"{where}: {str(value).lower()} isn't a value of this setting", param=name)
    if is_list(name) and isinstance(value, str):
        return name, tuple(part.strip() for part in value.split(","))
    return name, value


def _as_switch(value: object, where: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    word = str(value).strip().lower()
    if word not in words:
        raise ConfigError(f"{where}: {value!r} must be true or false")
    return words[word]


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'port'?`` where something known is near, else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def _settings(given: Mapping[str, Given]) -> Settings:
    try:
        return Settings.model_validate({field: entry.value for field, entry in given.items()})
    except ValidationError as error:
        raise _in_one_line(error, given) from None  # the error holds what was given


def _in_one_line(error: ValidationError, given: Mapping[str, Given]) -> ConfigError:
    first = error.errors(include_url=False)[0]
    words = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:  # settings that don't agree with each other; the words name them
        return ConfigError(words)
    field = str(first["loc"][0])
    where = given[field].where if field in given else flag_name(field)
    shown = "" if field in SECRETS else f"{first['input']!r}: "
    return ConfigError(f"{where}: {shown}{words[:1].lower()}{words[1:]}", param=field)
