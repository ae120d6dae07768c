"""Bad requests by hand, each with its answer: status, type, param; then the same server gives the right text again."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from api.harness import EOS_ID, MODEL, VOCAB_SIZE, Server, serving

JSON = {"content-type": "application/json"}
PROMPT = {"prompt": "x", "max_tokens": 1}
COMPLETION = {"model": "tiny", "prompt": "x", "max_tokens": 1}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
BODIES = {"/basic_generate": PROMPT, "/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}
WRONG, UNDONE, LONG, INVALID = "invalid_parameter", "unsupported_option", "prompt_too_long", "invalid_request"
MAX = 2**31 - 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    """One for all: what one case spoils, the next control finds."""
    async with serving(max_body_mib=11) as ready:
        ready.runner.say("control", "right")
        yield ready
        assert await control(ready) == "right"


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def control(server: Server) -> str:
    reply = await server.post("/basic_generate", prompt="control", max_tokens=9)
    return str(reply.json()["generated_text"])


async def refused(
    server: Server, path: str, body: bytes, headers: dict[str, str] | None = None
) -> tuple[int, str, Any]:
    """Status, type and param, and that the server is unharmed."""
    steps = server.runner.num_steps
    reply = await server.http.post(path, content=body, headers=JSON if headers is None else headers)
    assert reply.status_code >= 400, reply.text[:200]
    assert server.runner.num_steps == steps, "what is refused never reaches the model"
    assert len(reply.content) < 1500, "a refusal doesn't give a huge value back"
    error = reply.json()["error"]
    assert await control(server) == "right"
    return reply.status_code, error["type"], error["param"]


# --- every number, at its limits and just beyond -------------------------------------------------
NUMBERS: dict[str, tuple[list[Any], list[Any]]] = {  # field of /v1/completions → taken, refused
    "max_tokens": ([1, 20.0], [-1, MAX + 1, 2**63, 2**64, 0.5, True, "1", [1], {}]),
    "temperature": ([0, -0.0, 1e-300, 100], [-0.001, 100.001, 1e308, -1, True, "1", [1]]),
    "top_p": ([5e-324, 1], [0, -0.0, 1.0001, -1, 1e308, False, "1"]),
    "top_k": ([-1, 0, 1, MAX, 2.0], [-2, MAX + 1, 2**64, 1.5, True, "1"]),
    "min_p": ([0, -0.0, 1], [-0.001, 1.001, 1e308, True, "0"]),
    "repetition_penalty": ([1e-300, 100], [0, -0.0, -1, 100.1, 1e308, True, "1"]),
    "presence_penalty": ([-2, 0, 2], [-2.001, 2.001, 1e308, True, "1"]),
    "frequency_penalty": ([-2, 0, 2], [-2.001, 2.001, -1e308, True, "1"]),
    "n": ([1, 128, 2.0], [0, -1, 129, 10**6, 2**63, 1.5, True, "1"]),
    "seed": ([-(2**63), -1, 0, 2**64 - 1, 7.0], [-(2**63) - 1, 2**64, 10**300, 1e300, 0.5, True, "1"]),
    "logprobs": ([0, 20], [-1, 21, 2**64, 0.5, True, "1"]),
    "min_tokens": ([0, 1], [-1, 2, 2**64, 0.5, True, "1"]),
    "truncate_prompt_tokens": ([1, MAX, 1.0], [0, -1, 2**64, 0.5, True, "1"]),
    "priority": ([-(2**31), MAX, 0.0], [-(2**31) - 1, 2**31, 2**64, 0.5, True, "1"]),
    "timeout_s": ([60, 1e300], [0, -0.0, -1, True, "1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
async def test_a_number_is_taken_up_to_its_limits_and_refused_beyond_by_name(server: Server, name: str) -> None:
    taken, beyond = NUMBERS[name]
    for value in taken:
        reply = await server.post("/v1/completions", **{**COMPLETION, name: value})
        assert reply.status_code == 200, (value, reply.text)
    for value in beyond:
        body = json.dumps({**COMPLETION, name: value}).encode()
        assert await refused(server, "/v1/completions", body) == (400, WRONG, name), value


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "01", "+1", "1.", ".5"])
@pytest.mark.parametrize("path", BODIES)
async def test_a_number_that_is_no_json_or_that_no_float_holds_is_malformed(
    server: Server, path: str, literal: str
) -> None:
    body = json.dumps({**BODIES[path], "temperature": 0.0625}).encode().replace(b"0.0625", literal.encode())
    status, _, param = await refused(server, path, body)
    assert (status, param) == (400 if path.startswith("/v1/") else 422, None)


async def test_a_number_of_ten_million_digits_is_refused(server: Server) -> None:
    body = json.dumps({**COMPLETION, "seed": 7}).encode().replace(b"7", b"7" * 10**7)
    assert (await refused(server, "/v1/completions", body))[0] == 400


# --- prompts -------------------------------------------------------------------------------------
PROMPTS: dict[str, tuple[Any, tuple[int, str, str | None]]] = {
    "empty text": ("", (400, INVALID, "prompt")),
    "empty list": ([], (400, WRONG, "prompt")),
    "empty list in a list": ([[]], (400, INVALID, "prompt")),
    "empty text in a list": (["x", ""], (400, INVALID, "prompt")),
    "nothing": (None, (400, WRONG, "prompt")),
    "a number": (7, (400, WRONG, "prompt")),
    "true": (True, (400, WRONG, "prompt")),
    "an object": ({"text": "x"}, (400, WRONG, "prompt")),
    "texts and ids": (["x", 7], (400, WRONG, "prompt")),
    "ids and texts": ([7, "x"], (400, WRONG, "prompt")),
    "ids and lists of ids": ([7, [7]], (400, WRONG, "prompt")),
    "lists of texts": ([["x"]], (400, WRONG, "prompt")),
    "lists of lists of ids": ([[[7]]], (400, WRONG, "prompt")),
    "an id below the first": ([-1], (400, WRONG, "prompt")),
    "an id behind the last": ([VOCAB_SIZE], (400, WRONG, "prompt")),
    "an id of 2^64": ([2**64], (400, WRONG, "prompt")),
    "an id of 300 digits": ([10**300], (400, WRONG, "prompt")),
    "a bool for an id": ([True], (400, WRONG, "prompt")),
    "a float for an id": ([7.0], (400, WRONG, "prompt")),
    "null for an id": ([None], (400, WRONG, "prompt")),
    "a text of 10 MB": ("a" * 10**7, (400, LONG, "prompt")),
    "a million ids": ([7] * 10**6, (400, LONG, "prompt")),
    "100,000 prompts": (["x"] * 10**5, (400, INVALID, "prompt")),
    "40,000 lists of ids": ([[7]] * 40_000, (400, INVALID, "prompt")),
}


@pytest.mark.parametrize("what", PROMPTS)
async def test_a_prompt_that_can_t_be_is_refused(server: Server, what: str) -> None:
    value, answer = PROMPTS[what]
    assert await refused(server, "/v1/completions", json.dumps({**COMPLETION, "prompt": value}).encode()) == answer


SERVED: dict[str, Any] = {
    "NUL": "\0",
    "a byte order mark": "\ufeffx",
    "the last character": "\U0010ffff",
    "a character in two escaped halves": "\N{ROBOT FACE}",
    "right to left marks": "\u202e\u2066x",
    "control tokens only": "<|im_start|><|im_end|><|endoftext|>",
    "the end of text only": [EOS_ID],
    "the same id again and again": [7] * 400,
    "a lone space": " ",
    "line ends of all kinds": "\r\n\u2028\u0085",
}


@pytest.mark.parametrize("what", SERVED)
async def test_an_odd_prompt_is_a_prompt(server: Server, what: str) -> None:
    reply = await server.complete(SERVED[what], max_tokens=2)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["prompt_tokens"] >= 1
    assert await control(server) == "right"


@pytest.mark.parametrize(
    "text",
    [b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud800x"', b'"\xed\xa0\x80"', b'"\xff"', b'"\xc0\x80"', b'"\\x"', b'"\n"'],
)
@pytest.mark.parametrize("path", BODIES)
async def test_text_that_is_no_unicode_is_malformed_wherever_it_stands(server: Server, path: str, text: bytes) -> None:
    for field in ("stop", "user" if path.startswith("/v1/") else "policy"):
        body = json.dumps({**BODIES[path], field: "HERE"}).encode().replace(b'"HERE"', text)
        assert (await refused(server, path, body))[0] == (400 if path.startswith("/v1/") else 422)


# --- other fields --------------------------------------------------------------------------------
OTHERS: dict[str, tuple[dict[str, Any], tuple[int, str, str | None]]] = {
    "1,000 stop strings": ({"stop": ["x"] * 1000}, (400, WRONG, "stop")),
    "an empty stop string": ({"stop": ""}, (400, WRONG, "stop")),
    "an empty stop string among others": ({"stop": ["x", ""]}, (400, WRONG, "stop")),
    "a stop list of numbers": ({"stop": [7]}, (400, WRONG, "stop.0")),
    "a stop list in a list": ({"stop": [["x"]]}, (400, WRONG, "stop.0")),
    "a stop object": ({"stop": {"a": 1}}, (400, WRONG, "stop")),
    "300,000 biases": ({"logit_bias": {str(i): 1 for i in range(300_000)}}, (400, WRONG, "logit_bias")),
    "a bias of no token": ({"logit_bias": {str(VOCAB_SIZE): 1}}, (400, WRONG, "logit_bias")),
    "a bias of a word": ({"logit_bias": {"x": 1}}, (400, WRONG, "logit_bias")),
    "a bias of a negative id": ({"logit_bias": {"-1": 1}}, (400, WRONG, "logit_bias")),
    "a bias beyond its limit": ({"logit_bias": {"7": 100.5}}, (400, WRONG, "logit_bias")),
    "a bias in words": ({"logit_bias": {"7": "1"}}, (400, WRONG, "logit_bias.7")),
    "biases in a list": ({"logit_bias": [1]}, (400, WRONG, "logit_bias")),
    "stream in words": ({"stream": "true"}, (400, WRONG, "stream")),
    "stream as a number": ({"stream": 1}, (400, WRONG, "stream")),
    "stream options without a stream": ({"stream_options": {"include_usage": True}}, (400, WRONG, "stream_options")),
    "unknown stream options": ({"stream": True, "stream_options": {"x": 1}}, (400, UNDONE, "stream_options.x")),
    "stream options in a list": ({"stream": True, "stream_options": []}, (400, WRONG, "stream_options")),
    "an unknown field": ({"promt": "x"}, (400, UNDONE, "promt")),
    "a field of no name": ({"": 1}, (400, UNDONE, "")),
    "a field of a megabyte's name": ({"x" * 2**20: 1}, (400, UNDONE, "...")),
    "an unknown lane": ({"policy": "fast"}, (400, WRONG, "policy")),
    "a lane of a megabyte's name": ({"policy": "x" * 2**20}, (400, WRONG, "policy")),
    "a suffix": ({"suffix": "x"}, (400, UNDONE, "suffix")),
    "an unknown model": ({"model": "gpt"}, (404, "model_not_found", "model")),
    "a model of a megabyte's name": ({"model": "x" * 2**20}, (404, "model_not_found", "model")),
    "no model": ({"model": None}, (400, WRONG, "model")),
    "more sequences than the line holds": ({"n": 128, "prompt": ["x"] * 3}, (400, INVALID, None)),
}


@pytest.mark.parametrize("what", OTHERS)
async def test_a_field_that_can_t_be_is_refused_by_name(server: Server, what: str) -> None:
    fields, answer = OTHERS[what]
    found = await refused(server, "/v1/completions", json.dumps({**COMPLETION, **fields}).encode())
    assert found[:2] == answer[:2]
    assert found[2] == answer[2] or answer[2] == "..."


async def test_a_stop_string_of_a_megabyte_is_only_never_seen(server: Server) -> None:
    reply = await server.complete("x", max_tokens=3, stop="x" * 2**20, ignore_eos=True)
    assert reply.json()["choices"][0]["finish_reason"] == "length"
    assert await control(server) == "right"


MESSAGES: dict[str, tuple[Any, str, str | None]] = {
    "none": ([], WRONG, "messages"),
    "no list": ({"role": "user"}, WRONG, "messages"),
    "a text": ("x", WRONG, "messages"),
    "texts": (["x"], WRONG, "messages.0"),
    "no role": ([{"content": "x"}], WRONG, "messages.0.role"),
    "an unknown role": ([{"role": "root", "content": "x"}], WRONG, "messages.0.role"),
    "no content": ([{"role": "user"}], WRONG, "messages"),
    "content of a number": ([{"role": "user", "content": 7}], WRONG, "messages.0.content"),
    "an unknown field": ([{"role": "user", "content": "x", "mood": 1}], UNDONE, "messages.0.mood"),
    "a part of an image": (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        UNDONE,
        "messages.0.content.0.image_url",
    ),
    "a text part without text": ([{"role": "user", "content": [{"type": "text"}]}], WRONG, "messages"),
    "100,000 messages": ([{"role": "user", "content": "x"}] * 100_000, INVALID, None),
    "1,000,000 characters": ([{"role": "user", "content": "a" * 10**6}], LONG, None),
    "1,000 parts, longer than the context": (
        [{"role": "user", "content": [{"type": "text", "text": "x"}] * 1_000}], LONG, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MESSAGES)
async def test_messages_that_can_t_be_are_refused(server: Server, what: str) -> None:
    messages, kind, param = MESSAGES[what]
    found = await refused(server, "/v1/chat/completions", json.dumps({**CHAT, "messages": messages}).encode())
    assert found[:2] == (400, kind)
    assert param is None or found[2] == param


async def test_control_tokens_in_a_message_stay_text(server: Server) -> None:
    plain = (await server.chat("x", max_tokens=1)).json()["usage"]["prompt_tokens"]
    marked = (await server.chat("<|im_end|>", max_tokens=1)).json()["usage"]["prompt_tokens"]
    assert marked > plain + 1
    assert await control(server) == "right"


# --- the body as a whole -------------------------------------------------------------------------
DEEP = 10**5
WHOLE: dict[str, tuple[bytes, dict[str, str], int]] = {
    "lists without end": (b'{"prompt":' + b"[" * DEEP, JSON, 0),
    "lists that end": (b'{"prompt":' + b"[" * DEEP + b"]" * DEEP + b"}", JSON, 0),
    "objects without end": (b'{"prompt":' * DEEP, JSON, 0),
    "objects that end": (b'{"prompt":' * DEEP + b"1" + b"}" * DEEP, JSON, 0),
    "cut": (json.dumps(COMPLETION).encode()[:-3], JSON, 0),
    "two values": (b"{}{}", JSON, 0),
    "UTF-16": (json.dumps(PROMPT).encode("utf-16"), JSON, 0),
    "UTF-16 that says so": (
        json.dumps(PROMPT).encode("utf-16"),
        {"content-type": "application/json; charset=utf-16"},
        0,
    ),
    "UTF-32": (json.dumps(PROMPT).encode("utf-32"), JSON, 0),
    "a byte order mark": (b"\xef\xbb\xbf" + json.dumps(PROMPT).encode(), JSON, 0),
    "compressed": (gzip.compress(json.dumps(PROMPT).encode()), {**JSON, "content-encoding": "gzip"}, 415),
    "compressed twice": (b"x", {**JSON, "content-encoding": "gzip, br"}, 415),
    "a form": (b"prompt=x", {"content-type": "application/x-www-form-urlencoded"}, 0),
    "a form in parts": (b"--b\r\n\r\nx\r\n--b--", {"content-type": "multipart/form-data; boundary=b"}, 0),
    "no type": (json.dumps(PROMPT).encode(), {}, 0),
    "10 MB of spaces": (b" " * 10**7, JSON, 0),
    "12 MB": (b" " * 12_000_000, JSON, 413),
}


@pytest.mark.parametrize("what", WHOLE)
@pytest.mark.parametrize("path", BODIES)
async def test_a_body_that_can_t_be_is_refused(server: Server, path: str, what: str) -> None:
    body, headers, status = WHOLE[what]
    found = await refused(server, path, body, headers)
    assert found[0] in ({status} if status else {400 if path.startswith("/v1/") else 422, 400})


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/JSON", "application/vnd.api+json"])
async def test_json_by_another_spelling_is_json(server: Server, kind: str) -> None:
    reply = await server.http.post("/basic_generate", content=json.dumps(PROMPT), headers={"content-type": kind})
    assert reply.status_code == 200, reply.text


async def test_an_encoding_that_changes_nothing_is_taken(server: Server) -> None:
    headers = {**JSON, "content-encoding": "identity"}
    assert (await server.http.post("/basic_generate", content=json.dumps(PROMPT), headers=headers)).status_code == 200


async def test_a_body_where_none_belongs_is_passed_over(server: Server) -> None:
    for path in ("/health", "/v1/models", "/steps", "/metrics"):
        assert (await server.http.request("GET", path, content=b"[" * 1000, headers=JSON)).status_code == 200


# --- paths, methods, headers ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    ["//health", "/health/", "/Health", "/health/%2e%2e/steps", "/%00", "/health%00", "/%ff%fe",
     "/" + "a" * 60_000, "/..%2f..%2fetc/passwd", "/v1/completions/", "/v1//models", "/generate;x", "/requests/"],
)  # fmt: skip
async def test_a_path_that_is_none_is_404_in_our_shape(server: Server, path: str) -> None:
    reply = await server.http.get(f"http://tiny{path}")  # whole: of "//health" alone a client makes a host's page
    assert reply.status_code == 404, path[:50]
    assert reply.json()["error"]["type"] == "not_found"
    assert len(reply.content) < 1500


@pytest.mark.parametrize("name", ["x", "%2e%2e", "%00", "%ff", "a" * 50_000, "gen-%0d%0aX: 1", "\N{ROBOT FACE}", "a/b"])
async def test_a_request_that_nobody_sent_is_404(server: Server, name: str) -> None:
    for place in ("/requests/", "/v1/models/"):
        reply = await server.http.get(place + name)
        assert reply.status_code == 404, (place, name[:50])
        assert reply.json()["error"]["type"] in ("not_found", "model_not_found")
        assert len(reply.content) < 1500


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "PUT", "DELETE", "PATCH", "OPTIONS", "get"])
async def test_a_method_that_a_route_doesn_t_take_is_405_and_says_which_it_takes(server: Server, method: str) -> None:
    for path in ("/generate", "/steps"):
        scope_method = method if method != "get" else "GETX"
        reply = await server.http.request(scope_method, path, headers={"x-http-method-override": "POST"})
        assert reply.status_code == 405
        assert reply.headers["allow"] in ("GET", "POST")
        assert reply.json()["error"]["type"] == "method_not_allowed"


async def test_no_header_makes_another_method_of_a_request(server: Server) -> None:
    for header in ("x-http-method-override", "x-http-method", "x-method-override"):
        reply = await server.http.get("/generate", headers={header: "POST"})
        assert reply.status_code == 405


@pytest.mark.parametrize(
    ("query", "status"),
    [("since=-2", 400), ("since=-1", 200), (f"since={2**63 - 1}", 200), (f"since={2**63}", 400), ("since=x", 422),
     ("since=", 422), ("since=1.5", 422), ("since=NaN", 422), ("since=" + "9" * 5000, 422), ("since=%00", 422),
     ("limit=0", 400), ("limit=1001", 400), ("limit=-1", 400), ("limit=" + "9" * 400, 400), ("limit=true", 422),
     ("since=1&since=2", 400)],
)  # fmt: skip
async def test_steps_are_asked_for_by_number(server: Server, query: str, status: int) -> None:
    reply = await server.http.get("/steps?" + query)
    assert reply.status_code == status, reply.text[:200]
    assert len(reply.content) < 1500 or status == 200
    if status != 200:
        assert reply.json()["error"]["param"] in ("since", "limit")
        live = await server.http.get("/steps/stream?" + query) if "since" in query else reply
        assert live.status_code == status


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: 1", b"a\nb", b"\x00", b"\xff\xfe", b"a" * 129, b"a b", b"<script>"])
async def test_a_request_id_that_isn_t_plain_is_replaced(server: Server, value: bytes) -> None:
    reply = await server.http.post("/basic_generate", json=PROMPT, headers=[(b"x-request-id", value)])
    assert reply.status_code == 200
    assert reply.headers["x-request-id"].startswith("req-")
    assert "x-evil" not in reply.headers


# --- a tokenizer with more tokens than its model -------------------------------------------------
async def test_a_token_that_the_model_lacks_is_refused_and_never_looked_up(tmp_path: Path) -> None:
    folder = shutil.copytree(MODEL, tmp_path / "larger")
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": VOCAB_SIZE, "content": "<big>", "special": True, **flags})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    async with serving(model=str(folder)) as larger:
        for prompt in ("a <big> word", [7, VOCAB_SIZE], ["x", "<big>"]):
            reply = await larger.complete(prompt, max_tokens=1)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "prompt"), reply.text
            assert "token 384; the model's last is 383" in reply.json()["error"]["message"]
        biased = await larger.complete("x", max_tokens=1, logit_bias={str(VOCAB_SIZE): 1})
        assert biased.status_code == 400
        assert (await larger.complete("a word", max_tokens=1)).status_code == 200
