"""``everystep top``: its flags.

Owns what may be asked for, and that Ctrl-C is how one leaves.  Ignorant of how anything looks.
"""

from __future__ import annotations

import math
import os
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import click
from pydantic import SecretStr

from everystep.errors import ConfigError
from everystep.flags import KeyType
from everystep.settings_sources import client_keys, forget_secrets

DEFAULT_URL = "http://127.0.0.1:8000"


class Seconds(click.FloatRange):
    """A number in a range; what isn't a number is in none."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, param, context)
        if math.isnan(number):
            self.fail(f"{value} isn't a number", param, context)
        return number


class ServerUrl(click.ParamType[str]):
    """``http://HOST[:PORT][/PATH]``."""

    name = "URL"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> str:
        if not _is_server(str(value)):
            self.fail(f"{value!r} isn't a server's URL such as {DEFAULT_URL}", param, context)
        return str(value)


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_address = bool(parts.hostname) and parts.port != 0 and not any(map(str.isspace, url))
    except ValueError:
        return False
    return is_address and parts.scheme in ("http", "https") and not (parts.query or parts.fragment)


@click.command()
@click.option("--url", type=ServerUrl(), default=DEFAULT_URL, show_default=True, metavar="URL", help="the server")
@click.option(
    "--api-key",
    "keys",
    type=KeyType(SecretStr),
    multiple=True,
    metavar="KEY",
    help="the server's key; better as EVERYSTEP_API_KEY, which no list of processes shows",
)
@click.option(
    "--interval", type=Seconds(0.1, 60), default=0.5, show_default=True, metavar="S", help="between two looks"
)
@click.option("--lane", "policies", multiple=True, metavar="NAME", help="only this lane; may be given more than once")
@click.option("--once", "is_once", is_flag=True, help="one look, printed; as it is where the output is no terminal")
def top(url: str, keys: tuple[SecretStr, ...], interval: float, policies: tuple[str, ...], is_once: bool) -> None:
    """Watch a running server in the terminal: lanes, who sits in which seat, who waits and why. Ctrl-C leaves."""
    keys = client_keys(keys, os.environ)
    if len(keys) > 1:
        raise ConfigError(f"--api-key: {len(keys)} keys are given, and a server is sent one", param="api_key")
    forget_secrets(os.environ)
    from rich.console import Console

    from everystep.top.run import Top
    from everystep.top.server import Server

    try:
        with closing(Server(url, keys[0] if keys else None)) as server:
            Top(server, policies, interval, Console(highlight=False)).run(is_once=is_once)
    except KeyboardInterrupt:
        return
