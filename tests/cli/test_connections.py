"""What connections may cost a server: real sockets, the real process, and bytes of every kind."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from cli.served import TINY, Server, serving
from cli.wire import Wire, request
from everystep.config import Settings
from everystep.http_limits import MAX_REFUSED, OTHER_FILES, room_for_connections

KEY = "the-key-that-no-log-may-hold"
MAX_CONNECTIONS = 1100
BODY = {"prompts": ["a b c"], "max_tokens": 3}
HEALTH = request("GET", "/health")
LAST = request("GET", "/health", None, {"connection": "close"})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ["--api-key", KEY, "--max-connections", str(MAX_CONNECTIONS), "--log-level", "debug"]
    with serving(tmp_path_factory.mktemp("connections"), *flags) as ready:
        ready.client.headers["x-api-key"] = KEY
        yield ready
        assert ready.client.get("/health").status_code == 200
        ready.process.terminate()
        status, said = ready.end()
        assert status == 0
        assert "Traceback" not in said
        assert KEY not in said
        assert "ERROR" not in said


def sent(server: Server, data: bytes, *, half_close: bool = False) -> bytes:
    """All that the server says, until it closes."""
    with Wire(server.url) as wire:
        wire.send(data)
        if half_close:
            wire.half_close()
        return wire.read_to_end()


def num_connections(server: Server) -> int:
    """As a scrape has it; the scrape's own is one."""
    (line,) = [
        line for line in server.client.get("/metrics").text.splitlines() if line.startswith("everystep_http_conn")
    ]
    return int(float(line.split()[1])) - 1


def post(fields: dict[str, str], body: bytes = b"") -> bytes:
    return request("POST", "/generate", body, {"x-api-key": KEY, **fields})


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    """A request in chunks; the mapping has no place for one without Content-Length."""
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailers + b"\r\n"
    head = b"POST /generate HTTP/1.1\r\nhost: tiny\r\ncontent-type: application/json\r\nx-api-key: " + KEY.encode()
    return head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + framed


# --- bytes that are no request -------------------------------------------------------------------
MALFORMED = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + b"\x00" * 40,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version of HTTP that isn't spoken": b"GET /health HTTP/2.0\r\nhost: tiny\r\n\r\n",
    "no Host": b"GET /health HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "bare line feeds": b"GET /health HTTP/1.1\nhost: tiny\n\n",
    "a header without a colon": b"GET /health HTTP/1.1\r\nhost: tiny\r\nnonsense\r\n\r\n",
    "a space before the colon": b"GET /health HTTP/1.1\r\nhost : tiny\r\n\r\n",
    "a folded header": b"GET /health HTTP/1.1\r\nhost: tiny\r\na: b\r\n c\r\n\r\n",
    "NUL in a header": b"GET /health HTTP/1.1\r\nhost: tiny\r\na: \x00\r\n\r\n",
    "bytes over 127 in the target": "GET /é HTTP/1.1\r\nhost: tiny\r\n\r\n".encode(),
    "a tunnel": b"CONNECT tiny:80 HTTP/1.1\r\nhost: tiny\r\n\r\n",
    "two lengths": b"POST /generate HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a list of lengths": post({"content-length": "2, 2"}, b"{}"),
    "a negative length": post({"content-length": "-2"}, b"{}"),
    "a length of 30 digits": post({"content-length": "9" * 30}),
    "a length beside chunks": post({"transfer-encoding": "chunked"}, b"0\r\n\r\n"),
    "an encoding that isn't chunks": post({"transfer-encoding": "gzip", "content-length": "2"}, b"{}"),
    "chunks within chunks": chunked(b"{}").replace(b": chunked", b": chunked, chunked"),
    "a chunk longer than it says": chunked(b"{}").replace(b"2\r\n", b"1\r\n", 1),
    "a bad chunk that 100 should have been waited for": chunked(b"{}")
    .replace(b"2\r\n", b"x\r\n", 1)
    .replace(b"host: tiny", b"host: tiny\r\nexpect: 100-continue"),
    "a chunk of no length": chunked(b"{}").replace(b"2\r\n", b"\r\n", 1),
    "a chunk of a negative length": chunked(b"{}").replace(b"2\r\n", b"-2\r\n", 1),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_isnt_http_gets_400_in_the_usual_shape_and_the_connection_ends(server: Server, what: str) -> None:
    with Wire(server.url) as wire:
        wire.send(MALFORMED[what] + HEALTH)
        reply = wire.read_reply()
        assert (reply.status, reply.error["type"]) == (400, "invalid_request")
        assert reply.headers["connection"] == "close"
        assert reply.headers["content-type"] == "application/json"
        assert re.fullmatch(r"req-[0-9a-f]{24}", reply.headers["x-request-id"])
        assert wire.read_to_end() == b""


def test_under_v1_errors_of_a_connection_have_openais_code_too(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(b"GET /v1/models HTTP/1.1\r\nnonsense\r\n\r\n")
        assert wire.read_reply().error["code"] == "invalid_request"


@pytest.mark.parametrize("num_bytes", [65_537, 1_000_000])
@pytest.mark.parametrize("part", ["target", "header", "headers", "unfinished"])
def test_a_head_over_64_kib_gets_431(server: Server, part: str, num_bytes: int) -> None:
    long = b"a" * num_bytes
    head = {
        "target": b"GET /%b HTTP/1.1\r\nhost: tiny\r\n\r\n" % long,
        "header": b"GET / HTTP/1.1\r\nhost: tiny\r\nx: %b\r\n\r\n" % long,
        "headers": b"GET / HTTP/1.1\r\nhost: tiny\r\n%b\r\n\r\n" % (b"x: y\r\n" * (num_bytes // 6)),
        "unfinished": b"GET / HTTP/1.1\r\nhost: tiny\r\nx: " + long,
    }[part]
    with Wire(server.url) as wire:
        wire.send(head)
        reply = wire.read_reply()
        assert (reply.status, reply.error["type"]) == (431, "headers_too_large")
        assert "65536" in reply.error["message"]
        assert wire.read_to_end() == b""


def test_trailers_without_end_get_431(server: Server) -> None:
    assert sent(server, chunked(b"{", trailers=b"a: b\r\n" * 200_000)).startswith(b"HTTP/1.1 431 ")


def test_150_headers_of_400_bytes_are_fine(server: Server) -> None:
    with Wire(server.url) as wire:
        many = {f"x-{i}": "y" * 400 for i in range(150)}
        wire.send(request("GET", "/health", None, many))
        assert wire.read_reply().status == 200


# --- requests of unusual form --------------------------------------------------------------------
@pytest.mark.parametrize("target", ["http://tiny/health", "http://tiny:80/steps?limit=1", "/health#part"])
def test_a_target_may_be_a_whole_url(server: Server, target: str) -> None:
    with Wire(server.url) as wire:
        assert wire.ask("GET", target, x_api_key=KEY).status == 200


@pytest.mark.parametrize(
    "target", ["http://tiny", "http://tiny?x", "*", "//tiny/health", "/%00", "/%ff", "/a/../health"]
)
def test_other_targets_are_unknown_routes_or_the_page(server: Server, target: str) -> None:
    with Wire(server.url) as wire:
        assert wire.ask("GET", target, x_api_key=KEY).status in (200, 400, 404)  # 400: nothing here takes a query
        assert wire.ask("GET", target).status == 401
        assert wire.ask("GET", "/health").status == 200


def test_an_http_1_0_client_gets_its_answer_and_the_end(server: Server) -> None:
    said = sent(server, b"GET /health HTTP/1.0\r\n\r\n" + HEALTH)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_an_http_1_0_client_gets_no_chunks(server: Server, streams: bool) -> None:
    body = {"model": str(TINY), "prompt": "a b c", "max_tokens": 3, "stream": streams}
    with Wire(server.url) as wire:
        assert wire.ask("GET", "/health").status == 200
        wire.send(request("POST", "/v1/completions", body, {"x-api-key": KEY}).replace(b"HTTP/1.1", b"HTTP/1.0"))
        reply = wire.read_reply()
    assert reply.status == 200
    assert "transfer-encoding" not in reply.headers
    assert reply.body.endswith(b"data: [DONE]\n\n" if streams else b"}")


def test_head_has_no_body_and_leaves_the_connection_in_order(server: Server) -> None:
    with Wire(server.url) as wire:
        assert wire.ask("HEAD", "/health").status == 405
        assert wire.ask("GET", "/health").json()["status"] == "ok"


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
def test_an_upgrade_is_ignored_with_its_body_read_and_the_next_request_answered(server: Server, protocol: str) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": protocol, "x-api-key": KEY}
    in_chunks = chunked(b'{"prompts":', b'["a b c"],"max_tokens":3}')
    as_chunks = in_chunks.replace(b"host: tiny", b"host: tiny\r\nconnection: upgrade\r\nupgrade: " + protocol.encode())
    plain = request("POST", "/generate", BODY, {"x-api-key": KEY})
    with Wire(server.url) as wire:
        wire.send(request("POST", "/generate", BODY, upgrade) + as_chunks + in_chunks + plain)
        replies = [wire.read_reply() for _ in range(4)]
        assert wire.ask("GET", "/health", connection="upgrade", upgrade=protocol).status == 200
    assert {reply.status for reply in replies} == {200}
    assert len({reply.body for reply in replies}) == 1


def test_a_body_in_chunks_of_a_byte_is_read_whole_and_its_trailers_are_dropped(server: Server) -> None:
    chunks = [bytes([byte]) for byte in b'{"prompts": ["a b c"], "max_tokens": 3}']
    whole = server.client.post("/generate", json=BODY).content
    with Wire(server.url) as wire:
        for byte in chunked(*chunks, trailers=b"x-api-key: wrong\r\nhost: other\r\n"):
            wire.send(bytes([byte]))
        reply = wire.read_reply()
        assert (reply.status, reply.body) == (200, whole)
        assert wire.ask("GET", "/health").status == 200


def test_a_client_that_expects_100_gets_it_before_it_sends_its_body(server: Server) -> None:
    head, _, body = request("POST", "/generate", BODY, {"expect": "100-continue", "x-api-key": KEY}).partition(
        b"\r\n\r\n"
    )
    with Wire(server.url) as wire:
        wire.send(head + b"\r\n\r\n")
        assert wire.read_reply().status == 100
        wire.send(body)
        assert wire.read_reply().status == 200
        assert wire.ask("GET", "/health").status == 200


def test_a_client_that_expects_100_without_a_key_is_told_so_and_let_go(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(request("POST", "/generate", b"", {"expect": "100-continue", "content-length": "50"}))
        reply = wire.read_reply()
        assert (reply.status, reply.headers["connection"]) == (401, "close")
        assert wire.read_to_end() == b""


# --- bodies that nobody reads, or that end early -------------------------------------------------
@pytest.mark.parametrize("key", [None, KEY], ids=["401", "413"])
def test_a_refused_upload_hears_why_although_it_is_still_sending(server: Server, key: str | None) -> None:
    """Closed at once, the connection would be reset, and the answer lost on the way."""
    fields = {"content-length": str(10**9)} | ({"x-api-key": key} if key else {})
    with Wire(server.url) as wire:
        wire.send(request("POST", "/generate", b"[" * 20_000, fields))
        for _ in range(100):
            wire.send(b"[" * 20_000)
        reply = wire.read_reply()
        assert reply.status == (413 if key else 401)
        assert reply.headers["connection"] == "close"
        assert wire.read_to_end() == b""


def test_a_body_of_chunks_over_the_limit_gets_413(server: Server) -> None:
    with Wire(server.url) as wire:
        wire.send(chunked(*[b"[" * 100_000] * 90))
        assert wire.read_reply().status == 413


def test_a_request_cut_short_gets_400_if_its_client_still_listens(server: Server) -> None:
    for whole in (request("POST", "/generate", BODY), chunked(b"{}")):
        for size in (10, len(whole) - 3):
            assert sent(server, whole[:size], half_close=True).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 "))
    assert sent(server, b"", half_close=True) == b""


# --- many requests on a connection ---------------------------------------------------------------
def test_requests_sent_at_once_are_answered_in_order_each_with_its_own(server: Server) -> None:
    bodies = [{"prompts": [f"a {i}"], "max_tokens": 1 + i % 7} for i in range(40)]
    alone = [server.client.post("/generate", json=body).json() for body in bodies]
    with Wire(server.url) as wire:
        wire.send(b"".join(request("POST", "/generate", body, {"x-api-key": KEY}) for body in bodies) + LAST)
        assert [wire.read_reply().json() for _ in bodies] == alone
        assert wire.read_reply().json()["status"] == "ok"
        assert wire.read_to_end() == b""


def test_requests_cut_anywhere_are_put_together_again(server: Server) -> None:
    data = request("POST", "/generate", BODY, {"x-api-key": KEY}) + chunked(b"{", b"}") + HEALTH
    for size in (1, 2, 3, 5, 7, 50):
        with Wire(server.url) as wire:
            for start in range(0, len(data), size):
                wire.send(data[start : start + size])
            assert [wire.read_reply().status for _ in range(3)] == [200, 422, 200]


def test_a_connection_outlives_errors_of_its_requests(server: Server) -> None:
    with Wire(server.url) as wire:
        statuses = [
            wire.ask("POST", "/generate", BODY).status,
            wire.ask("GET", "/nowhere", x_api_key=KEY).status,
            wire.ask("POST", "/generate", b"{", x_api_key=KEY).status,
            wire.ask("POST", "/generate", {"prompts": 1}, x_api_key=KEY).status,
            wire.ask("PUT", "/generate", BODY, x_api_key=KEY).status,
            wire.ask("POST", "/generate", BODY, x_api_key=KEY).status,
        ]
    assert statuses == [401, 404, 422, 422, 405, 200]


# --- leaving, with uvloop and a worker of its own (test_leaving.py has the rest) ------------------
def counts(server: Server) -> dict[str, int]:
    """Of the continuous lane: sequences by outcome, and those accepted, running and waiting."""
    found = re.findall(r'^everystep_(\S+)\{(?:outcome="(\w+)",)?policy="continuous"(?:,outcome="(\w+)")?\} (\S+)$',
                       server.client.get("/metrics").text, re.MULTILINE)  # fmt: skip
    return {
        before or behind or name: int(float(value)) for name, before, behind, value in found if "_bucket" not in name
    }


@pytest.mark.parametrize("way", [Wire.leave, Wire.reset, Wire.half_close])
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_client_that_leaves_the_process_aborts_every_choice(
    server: Server, streams: bool, way: Callable[[Wire], None]
) -> None:
    body = {"model": str(TINY), "prompt": "a b c", "n": 64, "max_tokens": 480, "ignore_eos": True, "stream": streams}
    before = counts(server)
    with Wire(server.url) as wire:
        wire.send(request("POST", "/v1/completions", body, {"x-api-key": KEY}) + HEALTH * 5000)
        server.wait_until(lambda: counts(server)["num_requests_running"] > 0)
        way(wire)
        server.wait_until(lambda: counts(server)["aborted"] == before["aborted"] + 64)
    after = counts(server)
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
    assert after["requests_accepted_total"] == before["requests_accepted_total"] + 64


# --- many connections ----------------------------------------------------------------------------
def test_1000_idle_connections_are_no_hindrance_and_those_beyond_the_bound_are_told_so(server: Server) -> None:
    idle = [Wire(server.url) for _ in range(1000)]
    server.wait_until(lambda: num_connections(server) >= 1000)
    assert server.client.post("/generate", json=BODY).status_code == 200
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: server.client.post("/generate", json=BODY).status_code, range(64)))
    assert replies == [200] * 64
    idle += [Wire(server.url) for _ in range(MAX_CONNECTIONS - num_connections(server) - 1)]
    server.wait_until(lambda: num_connections(server) == MAX_CONNECTIONS - 1)
    for _ in range(10):
        with Wire(server.url) as wire:
            reply = wire.read_reply()
            assert (reply.status, reply.error["type"]) == (503, "too_many_connections")
            assert str(MAX_CONNECTIONS) in reply.error["message"]
            assert int(reply.headers["retry-after"]) > 0
            assert wire.read_to_end() == b""
    assert num_connections(server) == MAX_CONNECTIONS - 1
    idle.pop().leave()
    server.wait_until(lambda: num_connections(server) == MAX_CONNECTIONS - 2)
    with Wire(server.url) as wire:
        assert wire.ask("GET", "/health").status == 200
    for wire in idle:
        wire.leave()
    server.wait_until(lambda: num_connections(server) < 20)


def test_a_process_out_of_files_goes_on_as_soon_as_it_has_some(server: Server) -> None:
    assert server.client.get("/health").status_code == 200
    process = psutil.Process(server.process.pid)
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 20, before[1]))
    try:
        before_s = sum(process.cpu_times()[:2])
        wires = [Wire(server.url) for _ in range(60)]
        assert server.client.get("/health").status_code == 200  # on a connection that it has
        for wire in wires:
            wire.leave()
        server.wait_until(lambda: is_served(server))
        assert sum(process.cpu_times()[:2]) - before_s < 20  # of a deadline of 60: it doesn't spin
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, before)


def is_served(server: Server) -> bool:
    """Whether a new connection is; without a file for it, it is closed."""
    try:
        with Wire(server.url) as wire:
            return wire.ask("GET", "/health").status == 200
    except (ConnectionError, EOFError):
        return False


def test_the_soft_limit_on_files_is_raised_to_what_connections_need() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 100
    needed = wanted + MAX_REFUSED + OTHER_FILES
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed - 50, hard))
        assert room_for_connections(wanted) == wanted
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (needed, hard)
        assert room_for_connections(10) == 10
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (needed, hard), "it is never lowered"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_hard_limit_on_files_lowers_the_bound_and_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: None)
    wanted = Settings().max_connections
    assert room_for_connections(wanted) == 1024 - MAX_REFUSED - OTHER_FILES
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert all(number in record.getMessage() for number in ("1024", str(wanted), "832"))
