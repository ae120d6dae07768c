"""API keys: every route but ``/health*`` wants one, unknown routes included, where any key is set.

Owns the digests of the keys; the keys themselves aren't kept.  Ignorant of routes: what isn't open is closed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator

from starlette.types import ASGIApp, Receive, Scope, Send

from everystep.errors import AuthenticationFailed

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})  # for probes, which have no key


class ApiKeys:
    """Middleware that lets requests with an accepted key pass."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._digests and scope["type"] != "lifespan" and not _is_open(scope):
            candidates = list(_candidates(scope))
            if not any([self._accepts(candidate) for candidate in candidates]):
                raise AuthenticationFailed(
                    "the API key isn't accepted"
                    if candidates
                    else "an API key is needed: send Authorization: Bearer KEY, or X-API-Key: KEY"
                )
        await self._app(scope, receive, send)

    def _accepts(self, candidate: bytes) -> bool:
        """Compared with every key, and each in constant time, so that time tells nothing about the keys."""
        digest = hashlib.sha256(candidate).digest()
        matches: list[bool] = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def _is_open(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["path"] in OPEN_PATHS


def _candidates(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
