"""Bad input, as bytes: what no client should send, and what may come of it.

Owns the catalogue: broken HTTP, wrong keys, bodies too large, too deep or cut short, and right bodies with one field
gone odd.  Ignorant of sockets.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from soak_requests import Facts
from soak_wire import request_bytes

MIB = 2**20
NEVER_A_KEY = "0000-never-a-key"
REFUSALS = frozenset(range(400, 500))
HEADER = "X-A: 1\r\n"
ANY = frozenset({200, *REFUSALS})  # a right answer, or what is wrong


@dataclass(frozen=True)
class BadCase:
    """Bytes to send, and the statuses that they may get."""

    kind: str
    name: str
    data: bytes
    statuses: frozenset[int]
    may_close: bool = False  # without a word: it isn't HTTP
    policy: str | None = None  # whose lane counts it, if it is taken in after all
    num_sequences: int = 0


Headers = Mapping[str, str]


def bad_cases(facts: Facts, key: Headers, max_body_mib: float) -> list[BadCase]:
    """The whole catalogue but for odd fields, which are drawn."""
    found = [*_not_http(key), *_odd_http(key), *_wrong_keys(), *_bodies(key), *_too_large(key, max_body_mib)]
    return [*found, *_unread(key)]


def _not_http(key: Headers) -> Iterator[BadCase]:
    auth = "".join(f"{name}: {value}\r\n" for name, value in key.items())
    cases = {
        "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/0.9": b"GET /\r\n\r\n",
        "HTTP/9.9": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        "noise": bytes(range(256)) * 8 + b"\r\n\r\n",
        "a header without a colon": b"GET /version HTTP/1.1\r\nHost x\r\n\r\n",
        "NUL in a header": b"GET /version HTTP/1.1\r\nHost: x\r\nX-Y: a\x00b\r\n\r\n",
        "a negative length": f"POST /generate HTTP/1.1\r\n{auth}Content-Length: -5\r\n\r\n".encode(),
        "two lengths": f"POST /generate HTTP/1.1\r\n{auth}Content-Length: 2\r\nContent-Length: 9\r\n\r\n{{}}".encode(),
        "a length and chunks": (
            f"POST /generate HTTP/1.1\r\n{auth}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ).encode(),
        "a chunk of no size": f"POST /generate HTTP/1.1\r\n{auth}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
        "a chunk of 2^64": (
            f"POST /generate HTTP/1.1\r\n{auth}Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n"
        ).encode(),
        "headers of 200 KB": f"GET /version HTTP/1.1\r\n{auth}X-Long: {'x' * 200_000}\r\n\r\n".encode(),
        "5,000 headers": f"GET /version HTTP/1.1\r\n{auth}{HEADER * 5000}\r\n".encode(),
        "a path of 100 KB": f"GET /{'x' * 100_000} HTTP/1.1\r\n{auth}\r\n".encode(),
    }
    for name, data in cases.items():
        yield BadCase("broken HTTP", name, data, ANY, may_close=True)


def _odd_http(key: Headers) -> Iterator[BadCase]:
    for method in ("PUT", "DELETE", "PATCH", "BREW", "OPTIONS", "TRACE"):
        yield BadCase(
            "odd HTTP", f"{method} /generate", request_bytes("/generate", {}, key, method=method), REFUSALS, True
        )
    for path in ("/%00", "/../../etc/passwd", "/generate/", "//generate", "/requests/%ff", "/requests/" + "x" * 2000):
        yield BadCase("odd HTTP", f"GET {path:.30}", request_bytes(path, None, key), REFUSALS)
    for query in ("since=-2", "since=x", "limit=0", "limit=1e9", "limit=" + "9" * 5000, "since=" + "9" * 100):
        yield BadCase("odd HTTP", f"GET /steps?{query:.20}", request_bytes(f"/steps?{query}", None, key), ANY)
    upgrade = {**key, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    yield BadCase("odd HTTP", "a web socket", request_bytes("/steps/stream2", None, upgrade), REFUSALS)
    yield BadCase(
        "odd HTTP", "an odd X-Request-Id", request_bytes("/version", None, {**key, "X-Request-Id": "\x7f<>"}), ANY
    )


def _wrong_keys() -> Iterator[BadCase]:
    keys: dict[str, Headers] = {
        "no key": {},
        "a wrong key": {"Authorization": f"Bearer {NEVER_A_KEY}"},
        "an empty key": {"Authorization": "Bearer "},
        "another scheme": {"Authorization": "Basic c29hazpzb2Fr"},
        "a wrong X-API-Key": {"X-API-Key": NEVER_A_KEY},
        "a key of 4 KB": {"X-API-Key": "k" * 4000},
    }
    paths = (
        "/generate",
        "/generate_stream",
        "/v1/completions",
        "/v1/models",
        "/metrics",
        "/steps",
        "/",
        "/docs",
        "/no",
    )
    for number, (name, headers) in enumerate(keys.items()):
        for path in (paths[number], paths[-1 - number]):
            body = {"prompt": "x"} if path.startswith(("/generate", "/v1/c")) else None
            yield BadCase("wrong keys", f"{name}, {path}", request_bytes(path, body, headers), frozenset({401}))


def _bodies(key: Headers) -> Iterator[BadCase]:
    cases: dict[str, bytes] = {
        "empty": b"",
        "no JSON": b"{'prompts': ['x']}",
        "cut short": b'{"prompts": ["x"',
        "more behind the end": b'{"prompts": ["x"]} {}',
        "null": b"null",
        "a list": b"[]",
        "a text": b'"prompts"',
        "a number of 10,000 digits": b'{"prompts": ["x"], "max_tokens": ' + b"9" * 10_000 + b"}",
        "no UTF-8": b'{"prompts": ["\xff\xfe\xc3"]}',
        "UTF-16": '{"prompts": ["x"]}'.encode("utf-16"),
        "100,000 deep": b'{"prompts": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "an object 20,000 deep": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        "a million prompts": b'{"prompts": [' + b'"",' * 1_000_000 + b'""]}',
        "a prompt of 2 MB": b'{"prompts": ["' + b"a " * MIB + b'"]}',
        "an unknown field of 1 MB": b'{"prompts": [], "x": "' + b"y" * MIB + b'"}',
    }
    for name, data in cases.items():
        yield BadCase("bad bodies", name, request_bytes("/generate", data, key), REFUSALS)
        yield BadCase("bad bodies", f"{name}, /v1", request_bytes("/v1/chat/completions", data, key), REFUSALS)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/json;;;="):
        headers = {**key, "Content-Type": kind}
        yield BadCase("bad bodies", f"sent as {kind!r}", request_bytes("/tokenize", {"prompt": "x"}, headers), ANY)


def _too_large(key: Headers, max_body_mib: float) -> Iterator[BadCase]:
    too_large, size = frozenset({413}), int(max_body_mib * MIB) + 1
    announced = request_bytes("/generate", b"", {**key, "Content-Length": str(size)})
    yield BadCase("bodies too large", "announced", announced, too_large)
    yield BadCase(
        "bodies too large",
        "announced as 10^18",
        request_bytes("/generate", b"", {**key, "Content-Length": "1" + "0" * 18}),
        too_large,
    )
    fields = "".join(f"{name}: {value}\r\n" for name, value in key.items())
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{fields}Transfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"%x\r\n" % (MIB // 4) + b" " * (MIB // 4) + b"\r\n"
    yield BadCase("bodies too large", "in chunks", head + chunk * int(max_body_mib * 4 + 2) + b"0\r\n\r\n", too_large)


def _unread(key: Headers) -> Iterator[BadCase]:
    body = b"z" * 300_000
    yield BadCase("unread bodies", "GET with a body", request_bytes("/version", body, key, method="GET"), ANY)
    yield BadCase("unread bodies", "no such route", request_bytes("/no/such", body, key), REFUSALS)
    yield BadCase("unread bodies", "without a key", request_bytes("/generate", body, {}), frozenset({401}))
    yield BadCase("unread bodies", "the wrong method", request_bytes("/metrics", body, key), REFUSALS)


# --- one field gone odd ---------------------------------------------------------------------------
def odd_case(facts: Facts, key: Headers, rng: random.Random) -> BadCase:
    """A right body with one field's value replaced: refused, or answered if it happens to be right."""
    path, body, policy, num = rng.choice(_right_bodies(facts))
    name = rng.choice([*body, *EXTRA_FIELDS])
    value = rng.choice(ODD_VALUES)
    data = json.dumps(body | {name: value}).encode()
    label = f"{path} {name}={value!r:.40}"
    return BadCase("odd fields", label, request_bytes(path, data, key), ANY, policy=policy, num_sequences=num)


def _right_bodies(facts: Facts) -> list[tuple[str, dict[str, Any], str | None, int]]:
    openai: dict[str, Any] = {"model": facts.model, "max_tokens": 2, "policy": "continuous"}
    message = [{"role": "user", "content": "hello"}]
    return [
        ("/basic_generate", {"prompt": "a river", "max_tokens": 2}, "static", 1),
        ("/generate", {"prompts": ["a river", "b"], "max_tokens": 2}, "static", 2),
        ("/generate_stream", {"prompt": "a river", "max_tokens": 2}, "per_token", 1),
        ("/v1/completions", openai | {"prompt": "a river"}, "continuous", 3),
        ("/v1/chat/completions", openai | {"messages": message}, "continuous", 1),
        ("/tokenize", {"prompt": "a river"}, None, 0),
        ("/detokenize", {"tokens": [5, 6]}, None, 0),
    ]


EXTRA_FIELDS = (
    "temperature", "top_p", "top_k", "seed", "stop", "priority", "echo", "ignore_eos", "n", "logprobs", "logit_bias",
    "stream", "stream_options", "min_p", "min_tokens", "truncate_prompt_tokens", "user", "tools", "response_format",
    "timeout_s", "x" * 300, "",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, -(2**70), 0.5, 1.0, -0.0, 1e308, 5e-324, float("nan"),
    float("inf"), "", "x", "1", "\ud800", "\x00", "\u202e🙂", "a" * 10_000, [], [[]], [None], ["x", 1], ["", ""],
    [[5], [6]], [-1], [2**40], {}, {"a": {"b": []}}, {"5": 1e309}, {"-1": 1}, [{"role": "user"}],
    [{"role": "tool", "content": ""}],
)  # fmt: skip
