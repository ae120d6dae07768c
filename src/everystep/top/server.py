"""The server that is watched: three questions over HTTP, with its key.

Owns the connection and what counts as an answer.  Ignorant of what becomes of the answers.
"""

from __future__ import annotations

from typing import TypeVar

import httpx
import msgspec
from pydantic import SecretStr

from everystep.errors import ConfigError, EverystepError
from everystep.top.told import Facts, Figures, StepPage

Told = TypeVar("Told")

DEADLINE_S = 5.0  # of each question: a server answers these in milliseconds, whatever it computes
STARTING = 503
LOCKED = 401


class ServerSilent(EverystepError):
    """Nobody answers there, or not in time."""


class ServerRefuses(EverystepError):
    """It answers otherwise than a server of ours that lets us in."""


class Server:
    """One server, by its URL."""

    def __init__(self, url: str, key: SecretStr | None) -> None:
        """Asks nothing yet.  Raises :class:`ConfigError` for what is no URL."""
        self.url = url.rstrip("/")
        headers = {} if key is None else {"x-api-key": key.get_secret_value()}
        _check_url(self.url)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=DEADLINE_S, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def figures(self) -> Figures:
        """What it is like now."""
        return self._told(self._get("/figures"), Figures)

    def facts(self) -> Facts | None:
        """What serves; ``None`` while it starts."""
        reply = self._get("/engine")
        return None if reply.status_code == STARTING else self._told(reply, Facts)

    def steps(self, since: int, limit: int) -> StepPage:
        """Those after ``since``, oldest first."""
        return self._told(self._get(f"/steps?since={since}&limit={limit}"), StepPage)

    def _get(self, path: str) -> httpx.Response:
        try:
            return self._http.get(path)
        except httpx.TimeoutException:
            raise ServerSilent(f"{self.url} didn't answer within {DEADLINE_S:g} s") from None
        except httpx.RequestError as error:
            raise ServerSilent(f"no server at {self.url}: {error}") from None

    def _told(self, reply: httpx.Response, kind: type[Told]) -> Told:
        if reply.status_code == LOCKED:
            raise ServerRefuses(f"{self.url}: {_message(reply)}")
        try:
            return msgspec.json.decode(reply.content, type=kind)
        except ValueError:
            words = f"{reply.request.url.path} answered {reply.status_code}: {_message(reply)}"
            raise ServerRefuses(f"{self.url} isn't an everystep server, or one of another version: {words}") from None


def _check_url(url: str) -> None:
    try:
        host = httpx.URL(url).host
    except (httpx.InvalidURL, ValueError) as error:  # a name in Punycode that is none is the latter
        raise ConfigError(f"--url: {url[:100]!r} isn't a server's URL: {error}", param="url") from None
    assert host, "flags let none pass without"


def _message(reply: httpx.Response) -> str:
    """The words of an error of ours; else the status's."""
    try:
        return str(reply.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return reply.reason_phrase or "no words"
