"""A lane of a running everystep server, as a contender.

Owns what is asked and scraped around a timed request.  A closed load is one request with all prompts as token ids,
streamed; an open one is a request per arrival.  Ignorant of who started the server.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx

from everystep.analysis.load import Load, closed
from everystep.bench.apis import TO_THE_LAST_TOKEN, Completions, NativeStream
from everystep.bench.open_http import Api, pass_of, serve_over_http
from everystep.bench.passes import BenchFailed, Pass
from everystep.bench.scrape import drained, newest_step, scrape, seat_steps_between, steps_after
from everystep.bench.served import Served
from everystep.bench.streamed import Stream, read_answers


class HttpLane:
    """One policy behind ``/v1/completions``.  Greedy, end of text ignored, as everybody else."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        model: str,
        engine: str,
        policy: str,
        label: str,
        about: str,
        keeps_steps: bool = False,
    ) -> None:
        """``http`` stays the caller's; its base URL is the server.  ``keeps_steps``: its step log goes into results."""
        self.engine = engine
        self.policy = policy
        self.label = label
        self.about = about
        self._http = http
        self._model = model
        self._keeps_steps = keeps_steps

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        step = await self._newest_step()
        before = await scrape(self._http)
        stream, wall_s, cpu_s = await self._timed(self._body(prompts, max_tokens))
        answers = read_answers(stream.events(), len(prompts))
        after = await scrape(self._http)
        seat_steps = seat_steps_between(before, after, self.policy)
        return Pass(wall_s, answers.num_tokens, answers.arrivals_s, cpu_s, seat_steps, await self._steps_after(step))

    async def serve(self, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        api = Completions(self._model, extras={**TO_THE_LAST_TOKEN, "policy": self.policy})
        return await self._serve(api, load, prompts)

    async def _serve(self, api: Api, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        step = await self._newest_step()
        before = await drained(self._http)
        served = await serve_over_http(self._http, api, load, prompts, self.label)
        after = await drained(self._http)
        seat_steps = seat_steps_between(before, after, self.policy)
        outcome = replace(served.outcome, seat_steps=seat_steps)
        return replace(served, outcome=outcome, steps=await self._steps_after(step))

    async def _newest_step(self) -> int:
        return await newest_step(self._http) if self._keeps_steps else -1

    async def _steps_after(self, step: int) -> tuple[dict[str, Any], ...] | None:
        return await steps_after(self._http, step, self.policy) if self._keeps_steps else None

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


class NativeLane(HttpLane):
    """The same lane, asked through ``/generate_stream``: text in, and no count of tokens but the server's metric."""

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        load = closed(len(prompts), len(prompts[0]), max_tokens)
        return pass_of(await self.serve(load, prompts), self.label)

    async def serve(self, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        before = await scrape(self._http)
        served = await self._serve(NativeStream(self.policy), load, prompts)
        num_made = (await scrape(self._http)).num_generated - before.num_generated
        num_asked = sum(answer.num_tokens for answer in served.outcome.answers if answer.is_whole)
        if num_made < num_asked:
            raise BenchFailed(f"{self.label} made {num_made} tokens of {num_asked}: not like with like")
        return served
