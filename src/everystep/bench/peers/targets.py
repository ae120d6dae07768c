"""Servers that run already, named by their URLs, and whose they are.

Owns the words ``[NAME=]URL`` and the question of what answers there.  Ignorant of loads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from everystep.bench.passes import BenchFailed
from everystep.errors import ConfigError

ApiName = Literal["everystep", "native", "openai"]
NAMED = re.compile(r"([\w.-]+)=(.*)")
REFUSED = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class Target:
    """``name`` stands in the results, where one was given."""

    url: str
    name: str | None = None

    @property
    def has_path(self) -> bool:
        return urlsplit(self.url).path not in ("", "/")

    @property
    def openai_url(self) -> str:
        """Where ``/completions`` is: under ``/v1``, unless a path was given (OpenVINO Model Server has ``/v3``)."""
        return self.url if self.has_path else self.url.rstrip("/") + "/v1"


def parse_target(words: str) -> Target:
    """``[NAME=]URL``.  Raises :class:`ConfigError` naming the value."""
    found = NAMED.fullmatch(words)
    name, url = (found[1], found[2]) if found else (None, words)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"--url {words!r}: give [NAME=]http://HOST:PORT")
    if "@" in parts.netloc:  # the results name the URLs
        raise ConfigError(f"--url with a name or a password in it (at {parts.hostname}): give a key as --api-key")
    return Target(url, name)


def key_of(keys: Sequence[SecretStr], place: int) -> SecretStr | None:
    """One key is every URL's; of several, each is the URL's in the same place."""
    return keys[min(place, len(keys) - 1)] if keys else None


def with_key(key: SecretStr | None) -> dict[str, str]:
    """The header that a key is sent in."""
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}


async def is_everystep(http: httpx.AsyncClient) -> bool:
    """Whether its metrics are ours.  Raises :class:`BenchFailed` where they want a key that we haven't got."""
    reply = await http.get("/metrics")
    if reply.status_code in REFUSED:
        raise BenchFailed(
            f"{str(http.base_url).rstrip('/')}/metrics answers {reply.status_code}: {reply.text:.200} (--api-key)"
        )
    return reply.status_code == httpx.codes.OK and "everystep_info" in reply.text
