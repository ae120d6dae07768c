"""The soak: a short one against the fake runner, and that its judges see what they are there for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOAK = ROOT / "benchmarks" / "soak.py"
TINY = ROOT / "tests" / "golden" / "tiny" / "llama"
DEADLINE_S = 900.0
SHORT = (
    "--max-queue",
    "12",
    "--minutes",
    "0.75",
    "--rate",
    "12",
    "--stall-timeout",
    "5",
    "--client-timeout",
    "4",
    "--seed",
    "5",
)


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S)
def test_a_short_soak_ends_with_nothing_lost(tmp_path: Path) -> None:
    command = [sys.executable, str(SOAK), "--model", str(TINY), "--runner", "fake", "--out", str(tmp_path), *SHORT]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("EVERYSTEP_")}
    environ = outside | {"PYTHONPATH": str(ROOT / "src"), "EVERYSTEP_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))
    assert set(found["must_be_0"].values()) == {0}
    assert found["load"]["controls compared"] > 24, "more than those that were asked to learn the texts"
    assert found["book"]["ends"]["queue full (429)"] > 0, "bursts were above capacity"
    assert {"SIGKILL", "SIGSTOP, never continued"} <= set(found["recovery"])
    assert min(found["faults"].values()) > 0
    assert len(found["faults"]) > 13


# --- the judges ----------------------------------------------------------------------------------
@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The soak's files, which are scripts beside each other and no package."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import soak_answers
    import soak_controls
    import soak_ledger
    import soak_requests
    import soak_watch

    return {module.__name__: module for module in (soak_answers, soak_controls, soak_ledger, soak_requests, soak_watch)}


def stream_of(*data: str) -> bytes:
    return "".join(f"data: {each}\n\n" for each in data).encode()


def chunk(text: str, finish: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


def ask(soak: dict[str, ModuleType]) -> Any:
    return soak["soak_requests"].Ask("completions", "/v1/completions", {"prompt": "x"}, "static", 1, is_stream=True)


def test_a_whole_stream_is_an_answer(soak: dict[str, ModuleType]) -> None:
    reply = soak["soak_answers"].read_events(ask(soak), stream_of(chunk("a "), chunk("b", "stop"), "[DONE]"))
    assert (reply.end, reply.texts) == (soak["soak_ledger"].End.ANSWERED, ("a b",))


@pytest.mark.parametrize(
    "body",
    [
        stream_of(chunk("a"), chunk("b", "stop")),
        stream_of(chunk("a"), "[DONE]"),
        stream_of(chunk("a", "stop"), "[DONE]", chunk("b")),
        stream_of(chunk("a", "stop"), chunk("b"), "[DONE]"),
        stream_of(chunk("a", "stop"), "[DONE]")[:-1],
        b"",
    ],
    ids=["no end mark", "no finish", "more behind the end", "more behind the finish", "cut short", "empty"],
)
def test_a_stream_that_isnt_whole_is_no_answer(soak: dict[str, ModuleType], body: bytes) -> None:
    with pytest.raises(soak["soak_answers"].Malformed):
        soak["soak_answers"].read_events(ask(soak), body)


def test_an_internal_error_is_a_lost_request_and_a_dead_workers_isnt(soak: dict[str, ModuleType]) -> None:
    asking, ends = soak["soak_answers"], soak["soak_ledger"].End

    def end_of(message: str) -> Any:
        error = {"error": {"type": "engine_failed", "message": message, "param": None}}
        return asking.read_whole(ask(soak), 500, json.dumps(error).encode()).end

    assert end_of("internal error; the log has it under req-1") is ends.LOST
    assert end_of("the worker ended while serving this request: the process ended") is ends.WORKER_DIED


def test_a_request_with_two_ends_and_one_without_are_both_seen(soak: dict[str, ModuleType]) -> None:
    ends, book = soak["soak_ledger"].End, soak["soak_ledger"].Ledger()
    first, second = book.send("x", "static", 2, 0.0), book.send("y", "static", 1, 0.0)
    book.end(first, ends.ANSWERED, 1.0)
    book.end(first, ends.LEFT, 2.0)
    assert book.num_violations["a request ended twice"] == 1
    assert list(book.open.values()) == [second]


def test_the_book_bounds_what_the_server_may_count(soak: dict[str, ModuleType]) -> None:
    ends, book = soak["soak_ledger"].End, soak["soak_ledger"].Ledger()
    for how, num in (
        (ends.ANSWERED, 3),
        (ends.WORKER_DIED, 1),
        (ends.LEFT, 2),
        (ends.QUEUE_FULL, 5),
        (ends.REFUSED, 9),
    ):
        book.end(book.send("x", "static", num, 0.0), how, 1.0)
    accepted, rejected = book.accepted("static"), book.rejected("static")
    assert (accepted.low, accepted.high, rejected.low, rejected.high) == (4, 6, 5, 7)
    assert [accepted.hold(count) for count in (3, 4, 6, 7)] == [False, True, True, False]


async def test_a_text_that_differs_is_seen_whatever_the_lane(soak: dict[str, ModuleType]) -> None:
    asking, requests, book = soak["soak_answers"], soak["soak_requests"], soak["soak_ledger"].Ledger()
    texts = iter([("a",), ("a",), ("b",)])

    class Asked:
        ledger = book

        async def ask(self, _: Any) -> Any:
            return asking.Reply(soak["soak_ledger"].End.ANSWERED, next(texts))

    asks = [
        requests.Ask("c", "/generate", {"prompts": ["x"], "policy": lane}, lane, 1) for lane in ("static", "continuous")
    ]
    controls = soak["soak_controls"].Controls(Asked(), asks[:1], None)
    await controls.learn()
    assert not book.violations
    controls.asks = asks[1:]
    controls.rng = type("First", (), {"choice": lambda self, of: of[0]})()
    await controls.compare_one()
    assert book.num_violations["texts that differ"] == 1


def test_a_scrape_that_doesnt_balance_is_seen(soak: dict[str, ModuleType]) -> None:
    seen: list[str] = []
    watch = soak["soak_watch"].Watch(None, lambda line, words: seen.append(line), lambda: False)
    text = (
        'everystep_requests_accepted_total{policy="static"} 5.0\n'
        'everystep_requests_total{outcome="stop",policy="static"} 2.0\n'
        'everystep_requests_total{outcome="rejected",policy="static"} 9.0\n'
        'everystep_num_requests_running{policy="static"} 1.0\n'
        'everystep_num_requests_waiting{policy="static"} %s\n'
    )
    watch._balance(soak["soak_watch"].read_numbers(text % "2.0"))
    assert seen == []
    watch._balance(soak["soak_watch"].read_numbers(text % "1.0"))
    assert seen == ["scrapes that don't balance"]


def test_the_longest_step_is_the_bound_of_the_last_bucket_that_holds_one(soak: dict[str, ModuleType]) -> None:
    text = "".join(
        f'everystep_step_seconds_bucket{{le="{bound}"}} {count}\n'
        for bound, count in (("0.5", 7), ("1.0", 9), ("2.5", 9), ("+Inf", 9))
    )
    watch = soak["soak_watch"]
    assert watch.longest_step_s(watch.read_numbers(text)) == 1.0
