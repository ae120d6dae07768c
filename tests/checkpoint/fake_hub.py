"""A small hub on localhost: model info, tree, and files with ETag, X-Repo-Commit and Range.

Owns the protocol as the ``huggingface_hub`` client speaks it, and remembers what it was asked.  Can break off in the
middle of a file, and refuse as the hub refuses.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".bin", ".pth", ".onnx")  # stored by their SHA-256


@dataclass(slots=True)
class Refusal:
    """A status with the headers that tell its kind."""

    status: int
    code: str = ""
    message: str = ""


@dataclass(slots=True)
class Ask:
    """One request that was made."""

    method: str
    path: str
    token: str | None
    range: str | None


@dataclass(slots=True)
class PullRequest:
    """A revision ``refs/pr/NUMBER`` with files of its own."""

    number: int
    author: str
    files: dict[str, bytes]

    @property
    def commit(self) -> str:
        return f"{self.number:040x}"


@dataclass(slots=True)
class FakeHub:
    """``files`` by name, on the main branch.

    ``break_off`` maps a name to the bytes after which the connection ends, once per entry.
    """

    url: str = ""
    repo: str = "owner/model"
    files: dict[str, bytes] = field(default_factory=dict)
    pull_requests: list[PullRequest] = field(default_factory=list)
    refusal: Refusal | None = None
    discussions_refusal: Refusal | None = None
    token: str | None = None
    break_off: dict[str, list[int]] = field(default_factory=dict)
    does_ranges: bool = True
    asked: list[Ask] = field(default_factory=list)

    def add_folder(self, folder: Path) -> None:
        self.files |= {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def revisions(self) -> dict[str, tuple[str, dict[str, bytes]]]:
        """Commit and files by every name that a revision has."""
        known = {name: (COMMIT, self.files) for name in ("main", COMMIT)}
        for one in self.pull_requests:
            known |= {name: (one.commit, one.files) for name in (f"refs/pr/{one.number}", one.commit)}
        return known

    def asked_for(self, name: str) -> list[Ask]:
        """The requests for a file's content."""
        return [
            ask
            for ask in self.asked
            if ask.method == "GET" and ask.path.endswith(f"/{name}") and "/api/" not in ask.path
        ]


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def point_client_at(hub: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's settings are read once, at its import: they are set there.  Its cache is ``folder/hub``."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no-token"))


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(Ask(self.command, path, self.headers.get("Authorization"), self.headers.get("Range")))
        refusal = self._refusal(path)
        if refusal is not None:
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": refusal.message}
            return self._send(refusal.status, b"{}", {name: text for name, text in headers.items() if text})
        if path == f"/api/models/{hub.repo}/discussions":
            found = [self._discussion(one) for one in hub.pull_requests]
            return self._send_json({"discussions": found, "start": 0, "count": len(found)})
        for revision, (commit, files) in hub.revisions().items():
            if (
                path == f"/api/models/{hub.repo}/revision/{revision}"
                or path + revision == f"/api/models/{hub.repo}main"
            ):
                siblings = [self._sibling(name, data) for name, data in files.items()]
                return self._send_json({"id": hub.repo, "sha": commit, "siblings": siblings})
            if path == f"/api/models/{hub.repo}/tree/{revision}":
                return self._send_json([self._entry(name, data) for name, data in files.items()])
            prefix = f"/{hub.repo}/resolve/{revision}/"
            if path.startswith(prefix) and path.removeprefix(prefix) in files:
                name = path.removeprefix(prefix)
                return self._send_file(name, files[name], commit)
        self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def _refusal(self, path: str) -> Refusal | None:
        hub = self.hub
        if hub.refusal is not None:
            return hub.refusal
        if path.endswith("/discussions") and hub.discussions_refusal is not None:
            return hub.discussions_refusal
        if hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return Refusal(401, "RepoNotFound", "Invalid username or password.")
        if hub.repo not in path:
            return Refusal(404, "RepoNotFound", "Repository not found")
        if f"{hub.repo}/revision/" in path and path.partition("/revision/")[2] not in hub.revisions():
            return Refusal(404, "RevisionNotFound", "Invalid rev id")
        return None

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send_file(self, name: str, data: bytes, commit: str) -> None:
        status = 200
        headers = {"ETag": f'"{etag(name, data)}"', "X-Repo-Commit": commit, "X-Linked-Size": str(len(data))}
        asked = self.headers.get("Range")
        if asked and self.hub.does_ranges:
            begin = int(asked.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
            data, status = data[begin:], 206
        cuts = self.hub.break_off.get(name)
        cut = cuts.pop(0) if cuts and self.command == "GET" else None
        self._send(status, data, headers, cut)

    def _send(self, status: int, data: bytes, headers: dict[str, str], cut: int | None = None) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[:cut])
        if cut is not None:
            self.close_connection = True

    def _discussion(self, one: PullRequest) -> dict[str, object]:
        """The list is the newest first on the real hub, and can be filtered; this one isn't."""
        about = {"num": one.number, "title": "Adding `safetensors` variant", "author": {"name": one.author}}
        more = {"createdAt": "2023-05-01T10:00:00.000Z", "status": "open", "isPullRequest": True}
        return {**about, **more, "repo": {"name": self.hub.repo, "type": "model"}}

    def _sibling(self, name: str, data: bytes) -> dict[str, object]:
        large = {"lfs": {"sha256": etag(name, data), "size": len(data), "pointerSize": 130}}
        return {
            "rfilename": name,
            "size": len(data),
            "blobId": git_hash(data),
            **(large if name.endswith(LARGE) else {}),
        }

    def _entry(self, name: str, data: bytes) -> dict[str, object]:
        large = {"lfs": {"oid": etag(name, data), "size": len(data), "pointerSize": 130}}
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_hash(data)}
        return entry | (large if name.endswith(LARGE) else {})


def etag(name: str, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if name.endswith(LARGE) else git_hash(data)


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
