"""One large file over HTTP that goes on where an earlier try broke off, today or last week.

Owns ranges, the part that lies beside the target, and the check of its digest.  Ignorant of what is in the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from everystep.checkpoint.digest import CHUNK_BYTES
from everystep.checkpoint.hub_files import RemoteFile
from everystep.errors import ModelError

PARTIAL_CONTENT = 206


class BrokenOff(Exception):
    """The connection ended before the file did."""

    def __init__(self, file: RemoteFile, done: int) -> None:
        super().__init__(f"{file.name} broke off at {done} of {file.num_bytes} bytes")


class ResumedDownload:
    """Of one file.  ``report`` is told bytes as they are there, those of earlier tries at once; negative: start anew.

    Only one process may run this for a target at a time.
    """

    def __init__(
        self, client: Any, url: str, headers: dict[str, str], file: RemoteFile, report: Callable[[int], None]
    ) -> None:
        self._client, self._url, self._file, self._report = client, url, file, report
        self._headers = {**headers, "Accept-Encoding": "identity"}  # or lengths are those of something else
        self._digest = hashlib.sha256()
        self._done = 0

    def into(self, target: Path) -> None:
        """Raises :class:`BrokenOff`, what the client raises, or :class:`ModelError` for content that was damaged."""
        part = target.with_name(f"{target.name}.everystep.incomplete")  # so that the hub's own tools know it as such
        with part.open("a+b") as file:
            self._take_over(file)
            while self._done < self._file.num_bytes:
                self._attempt(file)
        if self._file.sha256 not in (None, self._digest.hexdigest()):
            part.unlink()
            raise ModelError(
                f"{self._file.name} arrived with SHA-256 {self._digest.hexdigest()}, expected {self._file.sha256}; "
                "it was thrown away: fetch it again"
            )
        os.replace(part, target)

    def _take_over(self, file: IO[bytes]) -> None:
        """What an earlier try left."""
        if file.tell() > self._file.num_bytes:
            file.truncate(0)
        file.seek(0)
        while chunk := file.read(CHUNK_BYTES):
            self._count(chunk)

    def _attempt(self, file: IO[bytes]) -> None:
        """From here to the end of the file or of the connection; an attempt that brings nothing is the last one."""
        before = self._done
        headers = self._headers | ({"Range": f"bytes={before}-"} if before else {})
        try:
            self._receive(file, headers)
        except Exception as error:
            if not _is_broken_connection(error):
                raise
            if before == 0 == self._done:
                raise  # nobody was reached at all
            if self._done <= before:
                raise BrokenOff(self._file, self._done) from error
        if self._done == before:
            raise BrokenOff(self._file, self._done)

    def _receive(self, file: IO[bytes], headers: dict[str, str]) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

        options: dict[str, Any] = {"timeout": constants.HF_HUB_DOWNLOAD_TIMEOUT, "follow_redirects": True}
        with self._client.stream("GET", self._url, headers=headers, **options) as response:
            hf_raise_for_status(response)
            if self._done and response.status_code != PARTIAL_CONTENT:
                self._start_anew(file)  # the server doesn't do ranges
            for chunk in response.iter_bytes():
                file.write(chunk)
                self._count(chunk)
                if self._done > self._file.num_bytes:
                    self._start_anew(file)
                    raise ModelError(f"{self._file.name} is longer than the {self._file.num_bytes} bytes announced")

    def _start_anew(self, file: IO[bytes]) -> None:
        self._report(-self._done)
        file.truncate(0)
        self._digest, self._done = hashlib.sha256(), 0

    def _count(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._done += len(chunk)
        self._report(len(chunk))


def _is_broken_connection(error: Exception) -> bool:
    """By name: the hub's client brings its HTTP library along, of either of two names."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)
