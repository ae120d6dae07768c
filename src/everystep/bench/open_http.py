"""An open load over HTTP: a request per arrival, a connection per open request.

Owns the turning of bytes into answers, once all of them are there.  Ignorant of which server it is: an :class:`Api`
says how it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import httpx

from everystep.analysis.load import Arrival, Load
from everystep.analysis.outcome import Answer, Outcome
from everystep.bench.exchange import Exchanged, exchange
from everystep.bench.passes import BenchFailed, Pass
from everystep.bench.schedule import Clock, Now, WallClock, send_on_schedule
from everystep.bench.served import BROKEN, FAILED, Client, Failure, Served, check_answers
from everystep.bench.streamed import ServerFailed, Stream, StreamedAnswers

# Kept shorter than servers keep an idle connection (uvicorn, llama.cpp: 5 s), so that none is used as it is closed.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
TIMEOUT = httpx.Timeout(None, connect=10.0)  # an answer takes as long as it takes


class Api(Protocol):
    """How a server is asked for one prompt, and how its answer is read."""

    @property
    def path(self) -> str: ...

    def body(self, prompt: Sequence[int], output_tokens: int) -> bytes:
        """A streamed request for just so many tokens."""

    def read(self, stream: Stream, output_tokens: int) -> StreamedAnswers:
        """Raises :class:`BenchFailed` where the answer isn't whole."""


async def serve_over_http(
    http: httpx.AsyncClient,
    api: Api,
    load: Load,
    prompts: Sequence[Sequence[int]],
    label: str,
    clock: Clock | None = None,
) -> Served:
    """Send on schedule, then read.  ``prompts`` are token ids, one list an arrival."""
    bodies = [api.body(prompt, arrival.output_tokens) for prompt, arrival in zip(prompts, load, strict=True)]

    async def send(index: int, now: Now) -> Exchanged:
        return await exchange(http, api.path, bodies[index], now)

    sent = await send_on_schedule(load, send, clock or WallClock())
    read = [_answer(api, arrival, reply) for arrival, reply in zip(load, sent.replies, strict=True)]
    answers = tuple(answer for answer, _ in read)
    check_answers(label, answers)
    last_s = max((answer.token_times_s[-1] for answer in answers if answer.is_whole), default=sent.wall_s)
    num_prompt_tokens = sum(num for _, num in read)
    return Served(Outcome(answers, last_s), Client(sent.cpu_s, sent.lags_s), num_prompt_tokens)


def _answer(api: Api, arrival: Arrival, reply: Exchanged) -> tuple[Answer, int]:
    """The answer, and the prompt's tokens as the server counted them."""
    failure = reply.failure
    if failure is None:
        try:
            read = api.read(reply.stream, arrival.output_tokens)
            return Answer(arrival, _pieces(read), read.num_tokens), read.num_prompt_tokens
        except ServerFailed as error:
            failure = Failure(FAILED, error.message)
        except BenchFailed as error:
            failure = Failure(BROKEN, error.message)
    return Answer(arrival, (), 0, str(failure)), 0


def _pieces(read: StreamedAnswers) -> tuple[float, ...]:
    """Arrivals without the empty chunk that some servers send behind the last token to say why it was the last."""
    (times,) = read.arrivals_s
    return times[: read.num_tokens] if read.num_tokens else times


def pass_of(served: Served, label: str) -> Pass:
    """A closed load that was sent as a request per prompt.  Raises :class:`BenchFailed` where one failed."""
    answers = served.outcome.answers
    errors = [answer.error for answer in answers if answer.error is not None]
    if errors:
        raise BenchFailed(f"{label}: {len(errors)} of {len(answers)} prompts failed: {errors[0]}")
    num_tokens = sum(answer.num_tokens for answer in answers)
    arrivals_s = tuple(tuple(answer.token_times_s) for answer in answers)
    outcome = served.outcome
    return Pass(outcome.wall_s, num_tokens, arrivals_s, served.client.cpu_s, outcome.seat_steps, served.steps)
