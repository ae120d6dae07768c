"""One streamed request over HTTP: the answer's bytes with their arrival times, or why there is none.

Owns the round trip and nothing of what is in it: the client shares the machine with what it measures, so bodies are
made before a load begins and answers are read when it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from everystep.bench.schedule import Now
from everystep.bench.served import BROKEN, CONNECTION, Failure
from everystep.bench.streamed import Stream

JSON = {"content-type": "application/json"}
MAX_WORDS = 200  # of a refusal


@dataclass(frozen=True, slots=True)
class Exchanged:
    """An answer as it came."""

    stream: Stream
    failure: Failure | None = None


async def exchange(http: httpx.AsyncClient, path: str, body: bytes, now: Now) -> Exchanged:
    """Post ``body`` and keep what comes, each block with the seconds since the load's start."""
    stream = Stream()
    try:
        async with http.stream("POST", path, content=body, headers=JSON) as response:
            if response.status_code != httpx.codes.OK:
                words = " ".join((await response.aread()).decode(errors="replace").split())
                return Exchanged(stream, Failure(str(response.status_code), words[:MAX_WORDS]))
            async for block in response.aiter_raw():
                stream.add(now(), block)
    except httpx.HTTPError as error:
        kind = BROKEN if stream.blocks else CONNECTION
        return Exchanged(stream, Failure(kind, f"{type(error).__name__}: {error}"[:MAX_WORDS]))
    return Exchanged(stream)
