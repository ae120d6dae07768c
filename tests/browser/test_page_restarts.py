"""Servers go away, come back as others, lose their worker or their keys: the page says so and goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import expect

from cli.kill_load import workers_of
from cli.served import DEADLINE_S, serving

RECORDED = Path(__file__).parents[1] / "analysis" / "recorded" / "smollm2.jsonl"


@pytest.fixture
def serve(tmp_path) -> Iterator[object]:
    """``serve(*flags)``: ``everystep serve`` as a process, on one port for the whole test."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = str(sock.getsockname()[1])
    with ExitStack() as processes:
        yield lambda *flags: processes.enter_context(serving(tmp_path, "--port", port, *flags))


def end(server) -> None:
    """As a crash would; its worker follows."""
    server.process.kill()
    server.process.wait(DEADLINE_S)


def dismiss_renewed(page) -> None:
    """The notice that another server answers, which is all that is left to say."""
    renewed = page.locator("#notices .notice.renewed")
    expect(renewed).to_contain_text("Another server answers at this address now")
    renewed.get_by_role("button", name="Dismiss").click()
    expect(page.locator("#notices")).to_be_empty()


def generate(server, num: int, **headers: str) -> None:
    body = {"prompts": [f"p{n}" for n in range(num)], "max_tokens": 5, "ignore_eos": True}
    assert server.client.post("/generate", json=body, headers=headers).status_code == 200


def saved(page, tmp_path) -> list[dict[str, object]]:
    with page.expect_download() as started:
        page.get_by_role("button", name="Save steps").click()
    path = tmp_path / "saved.json"
    started.value.save_as(path)
    return json.loads(path.read_text())["steps"]


@pytest.mark.slow
def test_a_server_that_goes_is_missed_and_another_in_its_place_begins_anew(serve, open_page, tmp_path):
    first = serve()
    generate(first, 6)
    page = open_page(first.url, is_checked=False)  # the browser itself notes that nobody answers as an error
    expect(page.locator("#header .state")).to_have_text("live")
    before = saved(page, tmp_path)
    end(first)
    expect(page.locator("#header .state")).to_have_text("server away")
    expect(page.locator("#notices")).to_contain_text("The server doesn't answer.")
    assert saved(page, tmp_path) == before, "what was seen stays"
    second = serve("--static-batch-size", "3")
    expect(page.locator("#header .state")).to_have_text("live")
    dismiss_renewed(page)
    generate(second, 4)
    expect(page.locator('.lane[data-policy="static"] .counts')).to_contain_text("working")
    assert saved(page, tmp_path) == second.client.get("/steps").json()["steps"]
    assert saved(page, tmp_path) != before


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_and_the_figures_go_on(serve, open_page):
    server = serve()
    page = open_page(server.url)
    expect(page.locator("#header .state")).to_have_text("live")
    (worker,) = workers_of(server.process.pid)
    os.kill(worker.pid, signal.SIGKILL)
    notice = page.locator(".notice.replaced")
    expect(notice).to_contain_text("The worker ended and was replaced.")
    expect(page.locator("#header .state")).to_have_text("live")
    generate(server, 6)
    expect(page.locator('#figures figure[data-name="tokens"] li').first).not_to_have_text("static: 0")
    expect(page.locator('.lane[data-policy="static"] .counts')).to_contain_text("working")
    notice.get_by_role("button", name="Dismiss").click()
    expect(notice).to_be_hidden()
    page.reload()
    expect(page.locator("#header .state")).to_have_text("live")
    expect(notice).to_be_hidden()  # what came before is nobody's news
    server.children = workers_of(server.process.pid)


@pytest.mark.slow
def test_a_key_that_is_no_longer_accepted_is_asked_for_again(serve, open_page):
    first = serve("--api-key", "the-first")
    page = open_page(first.url, is_checked=False)
    page.get_by_label("API key").fill("the-first")
    page.keyboard.press("Enter")
    expect(page.locator("#header .state")).to_have_text("live")
    end(first)
    expect(page.locator("#header .state")).to_have_text("server away")
    serve("--api-key", "the-second")
    expect(page.locator("#header .state")).to_have_text("locked")
    expect(page.locator("#notices").get_by_role("alert")).to_have_text("the API key isn't accepted")
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type("the-second")
    page.keyboard.press("Enter")
    expect(page.locator("#header .state")).to_have_text("live")
    dismiss_renewed(page)


def test_a_key_of_other_letters_is_no_key_and_harms_nothing(start_stage, open_page):
    stage = start_stage(api_key=("right",))
    page = open_page(stage.url, is_checked=False)
    page.get_by_label("API key").fill("열쇠")
    page.keyboard.press("Enter")
    expect(page.locator("#notices").get_by_role("alert")).to_contain_text("ASCII")
    page.get_by_label("API key").fill("right")
    page.keyboard.press("Enter")
    expect(page.locator("#header .state")).to_have_text("live")


def test_an_engine_that_is_not_ready_yet_is_told_and_shown_once_it_is(stage, open_page):
    page = open_page(stage.url, is_checked=False)  # the browser itself notes the 503 as an error
    figures = stage.client.get("/figures").json()
    starting = {**figures, "server_id": "new", "is_ready": False, "reason": "the worker is loading <b>the model</b>"}
    error = {"error": {"type": "engine_unavailable", "message": "not yet", "param": None}}
    page.route("**/figures", lambda route: route.fulfill(json=starting))
    page.route("**/engine", lambda route: route.fulfill(status=503, json=error))
    expect(page.locator("#header .state")).to_have_text("not ready")
    expect(page.locator(".notice.unready")).to_contain_text("the worker is loading <b>the model</b>")
    expect(page.locator("#header .facts")).to_have_text("no engine yet")
    page.unroute("**/figures")
    page.unroute("**/engine")
    expect(page.locator("#header .state")).to_have_text("live")
    expect(page.locator("#header .facts")).to_contain_text("tiny")
    expect(page.locator(".lane")).to_have_count(3)
    dismiss_renewed(page)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            {"status": 502, "content_type": "text/html", "body": "<h1>Bad Gateway</h1>"},
            "status 502: <h1>Bad Gateway</h1>",
        ),
        ({"status": 200, "content_type": "text/html", "body": "<p>Please log in"}, "status 200: <p>Please log in"),
        ({"status": 404, "json": {"detail": "Not Found"}}, 'status 404: {"detail": '),
    ],
)
def test_somebody_else_s_answer_is_told_as_such(stage, open_page, reply, words):
    page = open_page(stage.url, is_checked=False)
    expect(page.locator("#header .state")).to_have_text("live")
    page.route("**/figures", lambda route: route.fulfill(**reply))
    expect(page.locator(".notice.strange")).to_contain_text(words)
    expect(page.locator("#header .state")).to_have_text("server away")
    page.unroute("**/figures")
    expect(page.locator("#header .state")).to_have_text("live")
    expect(page.locator("#notices")).to_be_empty()


def test_steps_that_were_passed_over_are_told(stage, open_page):
    page = open_page(stage.url, is_checked=False)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    body = 'event: skipped\ndata: {"first":3,"last":42}\n\n'
    page.route("**/steps/stream*", lambda route: route.fulfill(content_type="text/event-stream", body=body), times=1)
    page.route(
        "**/figures", lambda route: route.fulfill(json={**figures, "server_id": "other"}), times=1
    )  # it reads anew
    expect(page.locator(".notice.skipped")).to_contain_text("40 steps were passed over")
    page.locator(".notice.skipped").get_by_role("button", name="Dismiss").click()
    expect(page.locator("#notices")).to_be_empty()


def test_two_tabs_show_the_same(stage, open_page, chromium):
    context = chromium.new_context(locale="en-US")
    tabs = [context.new_page(), context.new_page()]
    for tab in tabs:
        tab.goto(stage.url)
        expect(tab.locator("#header .state")).to_have_text("live")
    stage.runner.hold()
    tabs[0].locator("#try select").select_option("static")
    tabs[0].get_by_role("button", name="Send").click()
    expect(tabs[0].locator("#try .texts button").first).to_be_enabled()
    stage.steps(2)
    for tab in tabs:
        expect(tab.locator('.lane[data-policy="static"] .line h3')).to_have_text("Waiting: 12")
    stage.runner.release()
    expect(tabs[0].locator("#try tbody tr")).to_have_count(1)
    for tab in tabs:
        expect(tab.locator('.lane[data-policy="static"] .line h3')).to_have_text("Nobody waits")
    context.close()


COUNT_TIMERS = """
  window.timers = new Set();
  const [set, clear] = [window.setInterval, window.clearInterval];
  window.setInterval = (...args) => { const id = set(...args); window.timers.add(id); return id; };
  window.clearInterval = (id) => { window.timers.delete(id); clear(id); };
"""


def answer(reply: dict[str, object]):
    return lambda route: route.fulfill(json=reply)


def test_nothing_gathers_when_servers_and_recordings_come_and_go(stage, chromium):
    """Listeners and elements as the browser counts them, timers as they are set."""
    context = chromium.new_context(locale="en-US")
    context.add_init_script(COUNT_TIMERS)
    page = context.new_page()
    page.goto(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    figures = stage.client.get("/figures").json()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")

    def come_and_go(times: int) -> None:
        for n in range(times):
            page.locator('#controls input[type="file"]').set_input_files(RECORDED)
            expect(page.locator("#header .state")).to_have_text("recording")
            with page.expect_request("**/engine"):
                page.route("**/figures", answer({**figures, "server_id": f"{times} {n}"}))
            page.get_by_role("button", name="Back to the live server").click()
            expect(page.locator("#header .state")).to_have_text("live")
            with page.expect_request("**/engine"):
                page.unroute("**/figures")

    def gathered() -> dict[str, float]:
        session.send("HeapProfiler.collectGarbage")
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        timers = page.evaluate("() => window.timers.size")
        return {"listeners": found["JSEventListeners"], "nodes": found["Nodes"], "timers": timers}

    come_and_go(3)
    expect(page.locator(".lane")).to_have_count(3)
    before = gathered()
    come_and_go(12)
    expect(page.locator(".lane")).to_have_count(3)
    after = gathered()
    assert after["timers"] <= before["timers"] + 6, "those of a section that is gone end at their next turn"
    assert after["listeners"] <= before["listeners"] + 40, (before, after)
    assert after["nodes"] <= before["nodes"] + 300, (before, after)
    context.close()
