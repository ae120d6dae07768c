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
class FakeHub:
    """``files`` by name; ``break_off`` maps a name to the bytes after which the connection ends, once per entry."""

    url: str = ""
    repo: str = "owner/model"
    files: dict[str, bytes] = field(default_factory=dict)
    refusal: Refusal | None = None
    token: str | None = None
    break_off: dict[str, list[int]] = field(default_factory=dict)
    does_ranges: bool = True
    asked: list[Ask] = field(default_factory=list)

    def add_folder(self, folder: Path) -> None:
        self.files |= {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

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
        if path in {f"/api/models/{hub.repo}{end}" for end in ("", "/revision/main", f"/revision/{COMMIT}")}:
            return self._send_json({"id": hub.repo, "sha": COMMIT, "siblings": [self._sibling(n) for n in hub.files]})
        if path == f"/api/models/{hub.repo}/tree/{COMMIT}":
            return self._send_json([self._entry(name) for name in hub.files])
        for revision in ("main", COMMIT):
            prefix = f"/{hub.repo}/resolve/{revision}/"
            if path.startswith(prefix) and path.removeprefix(prefix) in hub.files:
                return self._send_file(path.removeprefix(prefix))
        self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def _refusal(self, path: str) -> Refusal | None:
        hub = self.hub
        if hub.refusal is not None:
            return hub.refusal
        if hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return Refusal(401, "RepoNotFound", "Invalid username or password.")
        if hub.repo not in path:
            return Refusal(404, "RepoNotFound", "Repository not found")
        if f"{hub.repo}/revision/" in path and not path.endswith(("/main", COMMIT)):
            return Refusal(404, "RevisionNotFound", "Invalid rev id")
        return None

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send_file(self, name: str) -> None:
        data, status = self.hub.files[name], 200
        headers = {"ETag": f'"{etag(name, data)}"', "X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(data))}
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

    def _sibling(self, name: str) -> dict[str, object]:
        data = self.hub.files[name]
        large = {"lfs": {"sha256": etag(name, data), "size": len(data), "pointerSize": 130}}
        return {
            "rfilename": name,
            "size": len(data),
            "blobId": git_hash(data),
            **(large if name.endswith(LARGE) else {}),
        }

    def _entry(self, name: str) -> dict[str, object]:
        data = self.hub.files[name]
        large = {"lfs": {"oid": etag(name, data), "size": len(data), "pointerSize": 130}}
        entry = {"type": "file", "path": name, "size": len(data), "oid": git_hash(data)}
        return entry | (large if name.endswith(LARGE) else {})


def etag(name: str, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if name.endswith(LARGE) else git_hash(data)


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
