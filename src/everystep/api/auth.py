"""API keys: every route but ``/health*`` wants one, unknown routes included, where any key is set.

Owns which requests are let in.  The keys themselves aren't kept.  Ignorant of routes: what isn't open is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from starlette.types import ASGIApp, Receive, Scope, Send

from everystep.api.local_only import check_is_local
from everystep.api.page.document import Document
from everystep.api_keys import HashedKey
from everystep.config import Settings
from everystep.errors import AuthenticationFailed

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})  # for probes, which have no key
MAX_CANDIDATES = 4  # of a request: comparing isn't free, and whoever isn't let in makes no work
UNAUTHORIZED = 401
POLICY_VIOLATION = 1008  # a web socket's close code


class ApiKeys:
    """Middleware that lets requests with an accepted key pass; without any key set, requests of this machine.

    It decides before the body is read and before the route is looked for, so that who isn't let in learns nothing.
    """

    def __init__(self, app: ASGIApp, settings: Settings, pages: Mapping[str, Document]) -> None:
        """``settings`` hold the keys of the file too.

        ``pages`` are, by path, those that ask a person for the key: a browser that goes there can't send one.
        """
        assert settings.api_key_file is None, "a key file that nobody read would let everybody in"
        self._app = app
        self._pages = pages
        self._keys: Sequence[HashedKey] = settings.api_key
        self._lets_all_in = settings.insecure_no_auth
        self._host = settings.host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not _is_open(scope):
                self._check(scope)
        except AuthenticationFailed:
            if page := self._page_that_asks(scope):
                reply = page.reply(UNAUTHORIZED)
                reply.headers["www-authenticate"] = "Bearer"
                await reply(scope, receive, send)
                return
            if scope["type"] != "websocket":
                raise
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        await self._app(scope, receive, send)

    def _page_that_asks(self, scope: Scope) -> Document | None:
        """For a person at a browser; a program gets its error."""
        if not self._keys or scope["type"] != "http" or scope["method"] != "GET":
            return None
        wants_page = any(name == b"accept" and b"text/html" in value.lower() for name, value in scope["headers"])
        return self._pages.get(scope["path"]) if wants_page else None

    def _check(self, scope: Scope) -> None:
        if self._keys:
            self._check_key(list(islice(_candidates(scope), MAX_CANDIDATES)))
        elif not self._lets_all_in:
            check_is_local(scope, self._host)

    def _check_key(self, candidates: Sequence[bytes]) -> None:
        if not any([self._accepts(candidate) for candidate in candidates]):
            raise AuthenticationFailed(
                "the API key isn't accepted"
                if candidates
                else "an API key is needed: send Authorization: Bearer KEY, or X-API-Key: KEY"
            )

    def _accepts(self, candidate: bytes) -> bool:
        """Compared with every key, and each in constant time, so that time tells nothing about the keys."""
        matches = [key.matches(candidate) for key in self._keys]
        return any(matches)


def _is_open(scope: Scope) -> bool:
    return scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in OPEN_PATHS)


def _candidates(scope: Scope) -> Iterator[bytes]:
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()
