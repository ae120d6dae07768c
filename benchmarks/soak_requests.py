"""What a soak asks: requests for every endpoint and lane, of many lengths and wishes, drawn from a seed.

Owns the draw, and the control requests whose texts must never change.  Ignorant of how a request is sent.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

LANES = ("static", "per_token", "continuous")
WORDS = """\
river stone morning seat step batch token lane water valley bridge keeper lighthouse wind tide ship story winter
return index value range print add first second 강물은 작은 샘에서 시작되어 바다로 흐른다 naïve café Straße 東京
🙂 👩‍🚀 The A In 1 2 3.14 x=y {} [0] <b> \\n
""".split()  # noqa: SIM905
NUM_BEGINNINGS, BEGINNING_SHARE = 4, 0.4
LONG_SHARE, MEDIUM_SHARE = 0.08, 0.35
PROMPT_SHARE = 0.5  # of the room that a sequence has, at most
MOST_OUTPUT, LONG_OUTPUT_SHARE = 24, 0.12
ECHO_SHARE = 0.25
QUIET_LANE = "per_token"
PRIORITIES = (-5, 0, 0, 0, 3)
CONTROL_PRIORITY = -100


@dataclass(frozen=True)
class Facts:
    """Of the server: what a request must know to be a right one."""

    model: str
    max_tokens: int  # a sequence may have, prompt and output together
    tokens_per_word: float
    prompt_ids: range
    has_timeout: bool  # whether requests may bring a deadline of their own
    has_chat: bool


@dataclass(frozen=True)
class Ask:
    """One right request."""

    kind: str
    path: str
    body: dict[str, Any] | None = None  # None: a GET
    policy: str | None = None  # the lane that counts it; None: it computes nothing
    num_sequences: int = 0
    is_stream: bool = False

    @property
    def echoes(self) -> tuple[str, ...]:
        """What each text must begin with, where its prompt was to come back."""
        if self.body is None or not self.body.get("echo"):
            return ()
        prompts = self.body.get("prompts", self.body.get("prompt"))
        texts = prompts if isinstance(prompts, list) else [prompts]
        return tuple(text for text in texts for _ in range(self.body.get("n", 1)))

    @property
    def num_tokens(self) -> int | None:
        """Tokens of all texts together, where they are known: nothing but their number ends them."""
        body = self.body or {}
        is_known = body.get("ignore_eos") and "stop" not in body
        return self.num_sequences * int(body["max_tokens"]) if is_known else None

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again must bring the same texts."""
        body = self.body or {}
        usual = 1.0 if self.path.startswith("/v1/") else 0.0
        return self.num_sequences > 0 and ("seed" in body or body.get("temperature", usual) == 0)

    def in_quiet(self) -> Ask:
        """The same question to the lane that recomputes least, without a deadline."""
        body = {name: value for name, value in (self.body or {}).items() if name != "timeout_s"}
        return replace(self, kind="asked again", body=body | {"policy": QUIET_LANE}, policy=QUIET_LANE)

    @property
    def timeout_s(self) -> float | None:
        """Its own deadline."""
        return (self.body or {}).get("timeout_s")


class Draw:
    """An endless supply of right requests."""

    def __init__(self, facts: Facts, rng: random.Random) -> None:
        self._facts = facts
        self._rng = rng
        self._most_words = max(4, int(facts.max_tokens * PROMPT_SHARE / facts.tokens_per_word))
        self._beginnings = [self._words(self._most_words // 2) for _ in range(NUM_BEGINNINGS)]

    def ask(self) -> Ask:
        """Any request."""
        makers = [self._whole, self._list, self._native_stream, self._completion, self._completion, self._look]
        if self._facts.has_chat:
            makers += [self._chat, self._chat]
        return self._rng.choice(makers)()

    def stream(self, max_tokens: int) -> Ask:
        """A stream that goes on: for those who leave it, or read it slowly."""
        if self._rng.random() < 0.5:
            return self._native_stream(max_tokens)
        return self.wide_stream(max_tokens, n=self._rng.choice((1, 2)))

    def wide_stream(self, max_tokens: int, n: int, logprobs: int | None = None) -> Ask:
        body = self._openai(max_tokens) | {"prompt": self.prompt(), "n": n, "stream": True, "logprobs": logprobs}
        return Ask("completions, stream", "/v1/completions", body, body["policy"], n, is_stream=True)

    def prompt(self) -> str:
        rng, share = self._rng, self._rng.random()
        if share < LONG_SHARE:
            return self._words(rng.randint(self._most_words // 2, self._most_words))
        most = self._most_words // 3 if share < LONG_SHARE + MEDIUM_SHARE else 8
        words = self._words(rng.randint(1, max(1, most)))
        return f"{rng.choice(self._beginnings)} {words}" if rng.random() < BEGINNING_SHARE else words

    # --- endpoints -------------------------------------------------------------------------------
    def _whole(self) -> Ask:
        body = self._native() | {"prompt": self.prompt()}
        return Ask("basic_generate", "/basic_generate", body, body.get("policy", "static"), 1)

    def _list(self) -> Ask:
        prompts = [self.prompt() for _ in range(self._rng.choice((0, 1, 2, 3, 6)))]
        body = self._native() | {"prompts": prompts}
        return Ask("generate", "/generate", body, body.get("policy", "static"), len(prompts))

    def _native_stream(self, max_tokens: int | None = None) -> Ask:
        body = self._native(max_tokens) | {"prompt": self.prompt()}
        lane = body.get("policy", "per_token")
        return Ask("generate_stream", "/generate_stream", body, lane, 1, is_stream=True)

    def _completion(self) -> Ask:
        rng, ids = self._rng, self._facts.prompt_ids
        prompts: list[Any] = [
            self.prompt(),
            [self.prompt(), self.prompt()],
            rng.choices(ids, k=rng.randint(1, 12)),
            [rng.choices(ids, k=rng.randint(1, 6)) for _ in range(3)],
        ]
        which, n = rng.randrange(len(prompts)), rng.choice((1, 1, 1, 2, 3))
        body = self._openai() | {"prompt": prompts[which], "n": n} | self._streaming()
        if rng.random() < 0.2:
            body["logprobs"] = rng.randint(0, 5)
        elif which < 2 and rng.random() < ECHO_SHARE:
            body["echo"] = True
        num = (1, 2, 1, 3)[which] * n
        return _openai_ask("completions", "/v1/completions", body, num)

    def _chat(self) -> Ask:
        rng, n = self._rng, self._rng.choice((1, 1, 2))
        messages = [{"role": "user", "content": self.prompt()}]
        if rng.random() < 0.4:
            messages = [{"role": "system", "content": self._words(5)}, *messages]
        body = self._openai() | {"messages": messages, "n": n} | self._streaming()
        if rng.random() < 0.2:
            body |= {"logprobs": True, "top_logprobs": rng.randint(0, 3)}
        return _openai_ask("chat", "/v1/chat/completions", body, n)

    def _look(self) -> Ask:
        paths = ("/v1/models", "/version", "/engine", "/steps?limit=20", "/metrics", "/openapi.json", "/docs")
        choice = self._rng.randrange(len(paths) + 1)
        if choice == len(paths):
            return Ask("tokenize", "/tokenize", {"prompt": self.prompt()})
        return Ask("looking", paths[choice])

    # --- wishes ----------------------------------------------------------------------------------
    def _native(self, max_tokens: int | None = None) -> dict[str, Any]:
        body = self._shared(max_tokens)
        if self._rng.random() < 0.6:
            body["policy"] = self._rng.choice(LANES)
        return body | ({"echo": True} if self._rng.random() < ECHO_SHARE else {})

    def _openai(self, max_tokens: int | None = None) -> dict[str, Any]:
        rng = self._rng
        body = self._shared(max_tokens) | {"model": self._facts.model, "policy": rng.choice(LANES)}
        if "temperature" not in body:
            body["temperature"] = 0
        if rng.random() < 0.2:
            body |= {
                "presence_penalty": 0.5,
                "repetition_penalty": 1.1,
                "logit_bias": {str(self._facts.prompt_ids[0]): 2},
            }
        return body

    def _shared(self, max_tokens: int | None) -> dict[str, Any]:
        rng = self._rng
        body: dict[str, Any] = {"max_tokens": max_tokens or self._output(), "priority": rng.choice(PRIORITIES)}
        if rng.random() < 0.5:
            body |= {"temperature": rng.choice((0.3, 0.8, 1.2)), "top_p": rng.choice((0.5, 0.95, 1.0))}
        if rng.random() < 0.4:
            body["seed"] = rng.randrange(1000)
        if rng.random() < 0.15:
            body["stop"] = rng.choice((" the", ["a", "\n\n"], "🙂"))
        if max_tokens or rng.random() < 0.3:
            body["ignore_eos"] = True
        if self._facts.has_timeout and rng.random() < 0.15:
            body["timeout_s"] = rng.choice((0.05, 0.5, 5.0))
        return body

    def _streaming(self) -> dict[str, Any]:
        if self._rng.random() < 0.5:
            return {}
        return {"stream": True, "stream_options": {"include_usage": self._rng.random() < 0.5}}

    def _output(self) -> int:
        rng = self._rng
        most = MOST_OUTPUT * 4 if rng.random() < LONG_OUTPUT_SHARE else MOST_OUTPUT
        return min(rng.randint(1, most), self._facts.max_tokens // 4)

    def _words(self, num: int) -> str:
        return " ".join(self._rng.choices(WORDS, k=max(1, num)))


def _openai_ask(name: str, path: str, body: dict[str, Any], num_sequences: int) -> Ask:
    is_stream = bool(body.get("stream"))
    kind = f"{name}, stream" if is_stream else name
    return Ask(kind, path, body, body["policy"], num_sequences, is_stream)


def controls(facts: Facts) -> list[Ask]:
    """Requests whose texts are theirs alone: greedy or seeded, over every lane and shape.  They go before others."""
    drawn = random.Random(0)
    texts = [" ".join(drawn.choices(WORDS, k=num)) for num in (3, 9, 16)]
    asks = []
    for lane in LANES:
        shared = {"policy": lane, "priority": CONTROL_PRIORITY, "max_tokens": 12}
        asks.append(Ask(f"control, {lane}", "/generate", shared | {"prompts": texts}, lane, len(texts)))
        seeded = shared | {"prompt": texts[0], "temperature": 1.0, "seed": 7, "ignore_eos": True}
        asks.append(Ask(f"control, {lane}", "/generate_stream", seeded, lane, 1, is_stream=True))
        openai = shared | {"model": facts.model, "prompt": texts[1], "n": 2, "temperature": 0.8, "seed": 11}
        asks.append(Ask(f"control, {lane}", "/v1/completions", openai, lane, 2))
        streamed = openai | {"stream": True, "stop": [" the"], "top_p": 0.9}
        asks.append(Ask(f"control, {lane}", "/v1/completions", streamed, lane, 2, is_stream=True))
    return asks
