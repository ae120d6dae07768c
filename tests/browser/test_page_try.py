"""What "try it" says of a run is what the server's own step log says, and what goes wrong is told in words."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

LANES = ("static", "per_token", "continuous")


def send(page, count: int, lane: str = "*", text: str | None = None) -> None:
    page.locator("#try select").select_option(lane)
    page.get_by_role("radio", name=str(count), exact=True).check(force=True)  # its label is what is seen
    if text is not None:
        page.get_by_label("Prompt", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()


def report(page, num_lanes: int) -> dict[str, list[str]]:
    """Cells by lane, when all are there."""
    rows = page.locator("#try tbody tr")
    expect(rows).to_have_count(num_lanes)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    return {row.get_attribute("data-policy"): row.locator("td").all_inner_texts() for row in rows.all()}


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def seat_steps(steps: list[dict[str, object]], seats: int, request_id: str) -> tuple[int, int, int]:
    """``(working, held, empty)`` of the steps that the request had a seat in."""
    ours = [step["rows"] for step in steps if any(row["request_id"] == request_id for row in step["rows"])]
    held = sum(row["phase"] == "held" for rows in ours for row in rows)
    taken = sum(len(rows) for rows in ours)
    return taken - held, held, seats * len(ours) - taken


@pytest.mark.parametrize("count", [1, 4, 16, 64])
def test_all_lanes_in_turn_get_the_same_prompts_and_the_numbers_are_the_step_log_s(start_stage, open_page, count):
    stage = start_stage(max_num_seqs=8)
    page = open_page(stage.url)
    began_s = time.monotonic()
    send(page, count)
    told = report(page, 3)
    outside_s = time.monotonic() - began_s
    seats = stage.client.get("/engine").json()["seats"]
    lengths = {}
    for lane in LANES:
        steps = stage.log(lane)
        (request_id,) = {row["request_id"] for step in steps for row in step["rows"]}
        life = stage.client.get(f"/requests/{request_id}").json()
        lengths[lane] = [(one["prompt_tokens"], one["output_tokens"]) for one in life["sequences"]]
        seconds, rate, first, num_steps, shared, sums = told[lane]
        assert whole(num_steps) == len(steps)
        working, held, empty = seat_steps(steps, seats[lane], request_id)
        assert tuple(map(whole, sums.split(" / "))) == (working, held, empty)
        assert float(shared) == pytest.approx(working / len(steps), abs=0.051)
        in_server_s = max(one["finish_s"] for one in life["sequences"]) - life["arrival_s"]
        assert in_server_s - 0.006 <= float(seconds) <= outside_s
        num_tokens = sum(output for _, output in lengths[lane])
        assert whole(rate.split(".")[0]) == pytest.approx(
            num_tokens / float(seconds), rel=0.02 + 0.006 / float(seconds)
        )
        assert re.fullmatch(r"[\d.]+ m?s", first)
    assert len(lengths["static"]) == count
    assert lengths["static"] == lengths["per_token"] == lengths["continuous"]
    check_ratio(page, {lane: float(cells[0]) for lane, cells in told.items()})


def check_ratio(page, seconds: dict[str, float]) -> None:
    sentence = page.locator("#try .ratio").inner_text()
    found = re.match(r"(\w+) was ([\d.]+) times as fast as (\w+):", sentence)
    if found is None:
        assert "took the same time" in sentence
        return
    fast, ratio, slow = found.groups()
    wanted = seconds[slow] / seconds[fast]  # both told to a hundredth, and the ratio to a tenth
    assert float(ratio) == pytest.approx(wanted, abs=0.06 + wanted * 0.01 / min(seconds.values()))
    assert max(seconds.values()) == seconds[slow]
    assert min(seconds.values()) == seconds[fast]


def test_texts_come_as_they_are_made_and_point_at_their_seats(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    send(page, 4, "static")
    texts = page.locator("#try .texts li")
    expect(texts).to_have_count(4)
    stage.steps(1)
    expect(page.locator("#try .progress")).to_contain_text(re.compile(r"static: [1-4] of 176 tokens"))
    stage.steps(8)
    before = texts.nth(1).inner_text()
    assert before != ""
    stage.steps(3)
    expect(texts.nth(1)).not_to_have_text(before)
    assert texts.nth(1).inner_text().startswith(before[:-2])  # the last character may have been half of one
    texts.nth(2).get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("3 of 4 in its request")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    stage.runner.release()
    told = report(page, 1)
    assert list(told) == ["static"]
    assert (
        page.locator("#try .ratio").inner_text()
        == f"static: {told['static'][4]} rows shared a forward pass on average."
    )


def test_stopping_ends_the_run_and_frees_its_seats_and_another_may_begin(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    send(page, 16)
    stage.steps(3)
    counts = page.locator('.lane[data-policy="static"] .counts')
    expect(counts).to_contain_text("4 running · 12 waiting")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#try .progress")).to_have_text("stopped")
    expect(counts).to_contain_text("0 running · 0 waiting")  # the server has noticed
    stage.runner.release()
    (request_id,) = {row["request_id"] for step in stage.log() for row in step["rows"]}
    life = stage.client.get(f"/requests/{request_id}").json()
    assert {one["finish"] for one in life["sequences"]} == {"aborted"}
    send(page, 1)
    report(page, 3)


def test_one_run_at_a_time_whatever_the_keys(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    send(page, 4, "continuous")
    stage.steps(1)
    prompt = page.get_by_label("Prompt", exact=True)
    for _ in range(3):
        prompt.press("Control+Enter")
    stage.runner.release()
    report(page, 1)
    assert len({row["request_id"] for step in stage.log() for row in step["rows"]}) == 1
    prompt.press("Control+Enter")
    expect(page.locator("#try .texts li")).to_have_count(4)
    report(page, 1)
    assert len({row["request_id"] for step in stage.log() for row in step["rows"]}) == 2


def test_company_in_the_same_lane_and_steps_of_other_lanes_are_told(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    post = stage.server.post
    other = stage.start(
        post("/try", prompts=[{"prompt": "x", "max_tokens": 30}] * 2, policy="continuous", ignore_eos=True)
    )
    elsewhere = stage.start(post("/try", prompts=[{"prompt": "y", "max_tokens": 20}], policy="static", ignore_eos=True))
    stage.steps(4)
    send(page, 4, "continuous")
    expect(page.locator("#try .texts button").first).to_be_enabled()  # it was taken in
    stage.runner.release()
    sums = report(page, 1)["continuous"][5]
    assert (other.result(60).status_code, elsewhere.result(60).status_code) == (200, 200)
    steps = stage.log("continuous")
    ours = max({row["request_id"] for step in steps for row in step["rows"]}, key=lambda who: sum_of(steps, who, 4))
    assert tuple(map(whole, sums.split(" / "))) == seat_steps(steps, 64, ours)
    with_us = [step for step in steps if any(row["request_id"] == ours for row in step["rows"])]
    theirs = sum(row["request_id"] != ours for step in with_us for row in step["rows"])
    assert theirs > 0
    expect(page.locator("#try .company").nth(1)).to_contain_text(f"{theirs} of the working seat-steps are theirs")
    between = [step for step in stage.log("static") if with_us[0]["step"] < step["step"] < with_us[-1]["step"]]
    expect(page.locator("#try .company").last).to_contain_text(f"Other lanes made {len(between)} steps meanwhile")


def sum_of(steps: list[dict[str, object]], request_id: str, num_sequences: int) -> bool:
    """Whether the request has so many sequences."""
    found = {row["sequence_id"] for step in steps for row in step["rows"] if row["request_id"] == request_id}
    return len(found) == num_sequences


def test_a_line_that_is_full_is_told_and_other_lanes_are_tried(start_stage, open_page):
    """It is one bound for all lanes."""
    stage = start_stage(max_queue=20)
    page = open_page(stage.url, is_checked=False)  # the browser itself notes the 429 as an error
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    prompts = [{"prompt": "x", "max_tokens": 9}] * 16
    before = stage.start(stage.server.post("/try", prompts=prompts, policy="static", ignore_eos=True))
    stage.steps(1)
    expect(page.locator('.lane[data-policy="static"] .line h3')).to_have_text("Waiting: 12")
    send(page, 16)
    problems = page.locator("#try .problems p")
    refused = re.compile("^static, per_token, continuous: the line is full. The server says: .*20.*")
    expect(problems).to_have_text([refused])  # one line for lanes that refuse alike
    stage.runner.release()
    assert before.result(60).status_code == 200
    send(page, 4, "continuous")
    report(page, 1)
    expect(problems).to_have_count(0)


@pytest.mark.parametrize("context", [48, 100])
def test_a_model_of_little_context_gets_shorter_prompts_and_answers_and_is_said_to(start_stage, open_page, context):
    stage = start_stage(max_model_len=context)
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    send(page, 16, "continuous", "Two by two")
    report(page, 1)
    expect(page.locator("#try .problems")).to_contain_text(f"this model has room for {context} tokens")
    (request_id,) = {row["request_id"] for step in stage.log() for row in step["rows"]}
    sequences = stage.client.get(f"/requests/{request_id}").json()["sequences"]
    assert len({one["output_tokens"] for one in sequences}) >= 4, "they are still of varied lengths"
    assert all(one["prompt_tokens"] + one["output_tokens"] <= context for one in sequences)
    assert {one["finish"] for one in sequences} == {"length"}


def test_a_prompt_that_no_context_holds_is_refused_in_the_server_s_words(start_stage, open_page):
    stage = start_stage(max_model_len=64)
    page = open_page(stage.url, is_checked=False)
    expect(page.locator("#try option")).to_have_count(4)
    send(page, 1, "static", "far too long " * 30)
    expect(page.locator("#try .problems")).to_contain_text(re.compile("static: refused. The server says: .*64"))
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_an_empty_prompt_is_not_sent(stage, open_page):
    page = open_page(stage.url)
    send(page, 4, text="  \n ")
    expect(page.locator("#try .problems")).to_have_text("There is no prompt to send.")
    assert stage.log() == []


def test_a_model_that_fails_within_a_run_is_told(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    send(page, 4, "static")
    stage.steps(2)
    stage.runner.fails |= {row["sequence_id"]: "out of luck" for row in stage.log()[0]["rows"][:1]}
    stage.runner.release()
    expect(page.locator("#try .problems")).to_contain_text(re.compile("static: failed. The server says: .*out of luck"))
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_request_that_takes_too_long_is_told(start_stage, open_page):
    stage = start_stage(request_timeout=0.2)
    page = open_page(stage.url, is_checked=False)
    expect(page.locator("#try option")).to_have_count(4)
    stage.runner.hold()
    send(page, 4, "static")
    expect(page.locator("#try .problems")).to_contain_text(re.compile(r"static: .* The server says: .*0\.2"))


def test_a_run_goes_on_where_a_recording_was_open_and_time_stood_still(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#try option")).to_have_count(4)
    page.get_by_role("button", name="Pause").click()
    send(page, 1, "static")
    report(page, 1)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_each_way_to_fail_has_its_words(stage, open_page):
    page = open_page(stage.url, is_checked=False, locale="ko-KR")
    send = page.locator("#try button.main")
    expect(send).to_be_enabled()
    page.locator("#try select").select_option("continuous")
    said = {"error": {"type": "x", "message": "<i>no</i>", "param": None}}
    ways = [
        (
            {"status": 503, "json": said},
            "continuous: 지금은 처리되지 않습니다. 서버의 말: <i>no</i>",
        ),
        (
            {"status": 401, "json": said},
            "continuous: API 키가 받아들여지지 않았습니다. 서버의 말: <i>no</i>",
        ),
        ({"status": 502, "body": "<h1>Bad"}, "continuous: 실패했습니다. 서버의 말: <h1>Bad"),
        ({"content_type": "text/event-stream", "body": "data: {"}, "continuous: 끝나기 전에 연결이 끊겼습니다."),
    ]
    for reply, words in ways:
        page.route("**/try", answer(reply))
        send.click()
        expect(page.locator("#try .problems")).to_have_text(words)
        expect(send).to_be_enabled()
        page.unroute("**/try")
    send.click()
    expect(page.locator("#try tbody tr")).to_have_count(1)
    expect(page.locator("#try .problems")).to_be_empty()


def answer(reply: dict[str, object]):
    return lambda route: route.fulfill(**reply)
