"""Anybody's server behind OpenAI's completions, as a contender.

Owns the finding out of what it takes: token ids or text, and which of the fields that force a full answer.  What isn't
OpenAI's own differs from server to server, so it is tried, and what comes back is counted.

- vLLM and SGLang take token ids, ``ignore_eos`` and ``min_tokens``; llama.cpp takes token ids and ``ignore_eos``.
- OpenVINO Model Server takes text and ``ignore_eos``, at ``/v3``.
- TGI takes text and ignores no end of text: it passes as long as none comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import httpx

from everystep.analysis.load import Load, closed
from everystep.analysis.outcome import Answer
from everystep.bench.apis import TO_THE_LAST_TOKEN, Completions
from everystep.bench.open_http import pass_of, serve_over_http
from everystep.bench.passes import BenchFailed, Pass
from everystep.bench.served import Served

OWN_POLICY = "own"  # it schedules as it does
KNOWN_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "ovms": "openvino-model-server"}
EXTRAS: tuple[Mapping[str, object], ...] = ({**TO_THE_LAST_TOKEN, "min_tokens": 1}, TO_THE_LAST_TOKEN, {})
TRIED_PROMPT_TOKENS, TRIED_OUTPUT_TOKENS = 16, 8
MOST_TOKEN_IDS = (30_000, 8_000, 2_000, 256)  # ids that a vocabulary may end at, tried from the largest


@dataclass(frozen=True, slots=True)
class Model:
    """What the server lists."""

    name: str
    owner: str  # the engine, in our words


class ForeignServer:
    """One URL.  A closed load is a request per prompt, all at once: not every server takes several in one."""

    def __init__(self, http: httpx.AsyncClient, api: Completions, engine: str, label: str) -> None:
        """``http`` stays the caller's."""
        self.engine = engine
        self.policy = OWN_POLICY
        self.label = label
        asked = "token ids" if api.takes_token_ids else "text of about as many tokens"
        forced = ", ".join(api.extras) or "nothing that forces full length"
        self.about = f"{engine} at {http.base_url}, model {api.model}, asked by {asked} with {forced}"
        self._http = http
        self._api = api

    async def measure(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> Pass:
        return pass_of(await self.serve(closed(len(prompts), len(prompts[0]), max_tokens), prompts), self.label)

    async def serve(self, load: Load, prompts: Sequence[Sequence[int]]) -> Served:
        return await serve_over_http(self._http, self._api, load, prompts, self.label)


async def listed_model(http: httpx.AsyncClient, wanted: str | None) -> Model:
    """``wanted``, or the first that the server lists.  Raises :class:`BenchFailed` where there is neither."""
    reply = await http.get("/models")
    models = reply.json().get("data", []) if reply.status_code == httpx.codes.OK else []
    first = models[0] if models else {}
    name = wanted or first.get("id")
    if not name:
        raise BenchFailed(f"{http.base_url}models answers {reply.status_code} and lists no model: give --url-model")
    owner = str(first.get("owned_by", "")).lower()
    return Model(str(name), KNOWN_OWNERS.get(owner, owner or "openai"))


async def found_out(http: httpx.AsyncClient, model: str, label: str) -> tuple[Completions, range]:
    """How to ask this server, and the token ids to draw from: the first way that gives just the tokens asked for.

    Raises :class:`BenchFailed` with what came of the last way, where none does.
    """
    said = ""
    for takes_token_ids, extras in product((True, False), EXTRAS):
        api = Completions(model, "/completions", extras, takes_token_ids)
        for high in MOST_TOKEN_IDS if takes_token_ids else MOST_TOKEN_IDS[:1]:
            answer, num_prompt_tokens = await _try(http, api, label, high)
            is_as_asked = num_prompt_tokens >= TRIED_PROMPT_TOKENS or not takes_token_ids
            if answer.is_whole and is_as_asked:
                return api, range(min(1000, high // 2), high)
            said = answer.error or f"{answer.num_tokens} tokens of {TRIED_OUTPUT_TOKENS}: not like with like"
    raise BenchFailed(f"{label} at {http.base_url} can't be measured: {said}")


async def _try(http: httpx.AsyncClient, api: Completions, label: str, high: int) -> tuple[Answer, int]:
    prompt = [high - 1 - place for place in range(TRIED_PROMPT_TOKENS)]
    load = closed(1, TRIED_PROMPT_TOKENS, TRIED_OUTPUT_TOKENS)
    try:
        served = await serve_over_http(http, api, load, [prompt], label)
    except BenchFailed as error:  # too few tokens
        return Answer(load[0], (), 0, error.message), 0
    return served.outcome.answers[0], served.num_prompt_tokens or 0
