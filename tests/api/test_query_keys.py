"""Keys of the query string: none is ignored, on any route, and bad values of known ones are named with the limit."""

from __future__ import annotations

from itertools import product

from api.harness import Server, serving

GETS = ("/", "/steps", "/steps/stream", "/steps/trace", "/requests/x", "/metrics", "/version", "/health",
        "/health/live", "/health/ready", "/v1/models", "/v1/models/tiny", "/engine", "/figures",
        "/docs", "/openapi.json")  # fmt: skip
POSTS = {
    "/basic_generate": {"prompt": "x"},
    "/generate": {"prompts": ["x"]},
    "/generate_stream": {"prompt": "x"},
    "/generate_vllm": {"prompts": []},
    "/try": {"prompts": [{"prompt": "x", "max_tokens": 1}]},
    "/tokenize": {"prompt": "x"},
    "/detokenize": {"tokens": [1]},
    "/v1/completions": {"model": "tiny", "prompt": "x"},
    "/v1/chat/completions": {"model": "tiny", "messages": [{"role": "user", "content": "x"}]},
}


def test_every_route_of_the_application_is_tried_here(server: Server) -> None:
    paths = {path.replace("{request_id}", "x").replace("{name}", "tiny") for path in server.app.openapi()["paths"]}
    assert paths <= {*GETS, *POSTS}


async def test_a_key_that_no_route_takes_is_refused_by_name_on_every_route(server: Server) -> None:
    for path, query in product(GETS, ["foo=1", "x", "Since=1", "since%00=1", "=1", "max_tokens=3"]):
        reply = await server.http.get(f"{path}?{query}")
        assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_parameter"), path
        assert "unknown query parameter" in reply.json()["error"]["message"]
    for path, body in POSTS.items():
        reply = await server.http.post(f"{path}?foo=1", json=body)
        assert reply.status_code == 400, path
        assert "unknown query parameter" in reply.json()["error"]["message"]
    assert server.runner.num_steps == 0


async def test_the_refusal_names_the_key_and_those_there_are(server: Server) -> None:
    error = (await server.http.get("/steps?foo=1")).json()["error"]
    assert error["param"] == "foo"
    assert error["message"] == "unknown query parameter 'foo': /steps takes since, limit"


async def test_a_key_given_twice_is_refused(server: Server) -> None:
    error = (await server.http.get("/steps?since=1&since=2")).json()["error"]
    assert (error["type"], error["param"]) == ("invalid_parameter", "since")


async def test_a_bad_value_is_named_with_what_is_taken(server: Server) -> None:
    for path, words in [
        ("/steps?limit=0", "limit=0 must be from 1 to 1000"),
        ("/steps?limit=1001", "limit=1001 must be from 1 to 1000"),
        ("/steps?since=-2", "since=-2 must be a step's number, or -1"),
        ("/steps/stream?since=-2", "since=-2 must be a step's number, or -1"),
        ("/steps?since=abc", "since='abc': Input should be a valid integer"),
        ("/steps?limit=1.5", "limit='1.5': Input should be a valid integer"),
        ("/steps?limit=", "limit='': Input should be a valid integer"),
    ]:
        reply = await server.http.get(path)
        assert 400 <= reply.status_code < 500
        assert words in reply.json()["error"]["message"]


async def test_a_step_that_never_was_gives_an_empty_page_or_a_refusal(server: Server) -> None:
    assert (await server.http.get("/steps?since=1000000")).json()["steps"] == []
    for since in ("9" * 25, "9" * 5000):
        assert 400 <= (await server.http.get(f"/steps?since={since}")).status_code < 500


async def test_without_a_key_nobody_learns_which_parameters_there_are() -> None:
    async with serving(api_key=("key",)) as server:
        assert (await server.http.get("/steps?foo=1")).status_code == 401
