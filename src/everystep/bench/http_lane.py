"""A lane of a running everystep server, as a contender.

Owns the request that is timed: one, with all prompts as token ids, streamed.  Ignorant of who started the server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import httpx

from everystep.bench.passes import BenchFailed, Pass
from everystep.bench.scrape import scrape, seat_steps_between
from everystep.bench.streamed import Stream, read_answers


class HttpLane:
    """One policy behind ``/v1/completions``.  Greedy, end of text ignored, as everybody else."""

    def __init__(self, http: httpx.AsyncClient, model: str, engine: str, policy: str, label: str, about: str) -> None:
        """``http`` stays the caller's; its base URL is the server."""
        self.engine = engine
        self.policy = policy
        self.label = label
        self.about = about
        self._http = http
        self._model = model

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        before = await scrape(self._http)
        stream, wall_s, cpu_s = await self._timed(self._body(prompts, max_tokens))
        answers = read_answers(stream.events(), len(prompts))
        after = await scrape(self._http)
        seat_steps = seat_steps_between(before, after, self.policy)
        return Pass(wall_s, answers.num_tokens, answers.arrivals_s, cpu_s, seat_steps)

    def _body(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> dict[str, object]:
        return {
            "model": self._model,
            "prompt": prompts,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "policy": self.policy,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def _timed(self, body: dict[str, object]) -> tuple[Stream, float, float]:
        """The answer's blocks, the wall time of the round trip and this process's CPU time meanwhile."""
        stream = Stream()
        cpu_start_s, start_s = time.process_time(), time.perf_counter()
        try:
            async with self._http.stream("POST", "/v1/completions", json=body) as response:
                if response.status_code != httpx.codes.OK:
                    words = (await response.aread()).decode(errors="replace")
                    raise BenchFailed(f"{self.label} answers {response.status_code}: {words:.300}")
                async for block in response.aiter_raw():
                    stream.add(time.perf_counter() - start_s, block)
        except httpx.HTTPError as error:
            raise BenchFailed(f"{self.label}: {type(error).__name__}: {error}") from error
        return stream, time.perf_counter() - start_s, time.process_time() - cpu_start_s
