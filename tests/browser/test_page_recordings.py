"""A recording shows what the server's own step log showed, and what can't be shown is told and does no harm."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.staged import staged

RECORDED = Path(__file__).parents[1] / "analysis" / "recorded" / "smollm2.jsonl"
LANES = ("static", "per_token", "continuous")
BLOCK_GIB = 32 * 8 / 2**30  # of the fake runner


def load(page, path_or_file) -> None:
    page.locator('#controls input[type="file"]').set_input_files(path_or_file)


def as_file(name: str, text: str) -> dict[str, object]:
    return {"name": name, "mimeType": "application/jsonl", "buffer": text.encode()}


def saved_steps(page, tmp_path) -> list[dict[str, object]]:
    """The steps in view, as the page's own button saves them."""
    with page.expect_download() as started:
        page.get_by_role("button", name="Save steps").click()
    path = tmp_path / "saved.json"
    started.value.save_as(path)
    return json.loads(path.read_text())["steps"]


def told(step: dict[str, object]) -> dict[str, object]:
    """What a recording holds of a step: the causes of waiting aren't in it."""
    waiting = {row["sequence_id"]: pytest.approx(row["waited_s"], abs=1e-5) for row in step["waiting"]}
    return {**step, "waiting": waiting}


def traffic(stage) -> None:
    """Rounds with held seats, chunks, preemptions, one that is aborted and one that is too late."""
    sent = [
        stage.start(
            stage.server.post(
                "/try",
                prompts=[{"prompt": f"{lane} {n} " + "so " * (7 * n), "max_tokens": 3 + 9 * (n % 4)} for n in range(6)],
                policy=lane,
                ignore_eos=True,
            )
        )
        for lane in LANES
    ]
    late = stage.server.complete("late", max_tokens=400, policy="static", ignore_eos=True, timeout_s=0.05)
    sent.append(stage.start(late))
    assert [one.result(60).status_code for one in sent] == [200, 200, 200, 504]


@pytest.fixture(scope="module")
def stage():
    """One for all: a recording isn't the server's."""
    with staged() as ready:
        yield ready


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """``(the file's text, the step log of the same server)``."""
    path = tmp_path_factory.mktemp("recorded") / "schedule.jsonl"
    settings = {"record": path, "max_num_seqs": 4, "max_num_batched_tokens": 16, "kv_cache_gib": 14 * BLOCK_GIB}
    with staged(**settings) as stage:
        traffic(stage)
    return path.read_text(), stage.log()  # whose round goes on without the one that was too late: both are whole now


def test_a_recording_s_steps_are_those_that_the_server_s_own_log_had(recorded, stage, open_page, tmp_path):
    text, log = recorded
    phases = {row["phase"] for step in log for row in step["rows"]}
    assert phases == {"prefill", "decode", "held"}
    assert {step["policy"] for step in log} == set(LANES)
    page = open_page(stage.url)
    load(page, as_file("schedule.jsonl", text))
    expect(page.locator("#notices")).to_contain_text("You are looking at a recording: schedule.jsonl")
    steps = saved_steps(page, tmp_path)
    assert [told(step) for step in steps] == [told(step) for step in log]


def test_who_waits_for_a_round_is_told_and_other_causes_are_said_not_to_be_recorded(
    recorded, stage, open_page, tmp_path
):
    text, log = recorded
    page = open_page(stage.url)
    load(page, as_file("schedule.jsonl", text))
    expect(page.locator("#header .state")).to_have_text("recording")
    causes = {}
    for step, logged in zip(saved_steps(page, tmp_path), log, strict=True):
        for row, truth in zip(step["waiting"], logged["waiting"], strict=True):
            causes.setdefault((step["policy"], row["why"]), set()).add(truth["why"])
    assert causes.pop(("static", "round_running")) == {"round_running"}
    assert {why for _, why in causes} == {"unrecorded"}


def test_a_recording_of_a_real_model_opens_is_scrubbed_and_left_again(stage, open_page, tmp_path):
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    ends = [line["end_s"] for line in lines if line["line"] == "step"]
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    load(page, RECORDED)
    expect(page.locator("#header .facts")).to_contain_text("smollm2-135m · openvino int8 · 2 threads")
    expect(page.locator("#figures")).to_be_hidden()
    saved = saved_steps(page, tmp_path)
    assert [step["end_s"] for step in saved] == ends
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    shown = float(re.search(r"[\d.]+", page.locator("#controls output").inner_text())[0])
    assert shown == pytest.approx(min(line["now_s"] for line in lines if line["line"] == "plan"), abs=0.01)
    page.get_by_role("button", name="Back to the live server").click()
    expect(page.locator("#header .state")).to_have_text("live")
    expect(page.locator("#figures")).to_be_visible()
    expect(page.locator("#notices")).to_be_empty()


def test_two_recordings_of_the_same_lanes_are_shown_one_after_the_other(recorded, stage, open_page, tmp_path):
    page = open_page(stage.url)
    load(page, RECORDED)
    expect(page.locator("#notices")).to_contain_text("smollm2.jsonl")
    shares = page.locator('.lane[data-policy="continuous"] .counts')
    expect(shares).to_contain_text("working")
    before = shares.inner_text()
    load(page, as_file("other.jsonl", recorded[0]))
    expect(page.locator("#notices")).to_contain_text("other.jsonl")
    expect(shares).not_to_have_text(before)


def test_a_file_of_two_servers_cut_within_a_line_shows_both(recorded, stage, open_page, tmp_path):
    text, log = recorded
    first = RECORDED.read_text()
    cut = first[: len(first) - 40] + "\n"  # the second server ends the line that the first was killed within
    page = open_page(stage.url)
    load(page, as_file("both.jsonl", cut + text))
    choice = page.get_by_label("Server of the recording")
    assert choice.locator("option").all_inner_texts() == ["both.jsonl (1/2)", "both.jsonl (2/2)"]
    assert len(saved_steps(page, tmp_path)) == len(log)
    choice.select_option("both.jsonl (1/2)")
    expect(page.locator("#notices")).to_contain_text("both.jsonl (1/2)")
    steps = [line for line in first.splitlines() if line.startswith('{"line":"step"')]
    assert len(saved_steps(page, tmp_path)) in (len(steps) - 1, len(steps))


def test_a_worker_s_successor_goes_on_in_the_same_picture(recorded, stage, open_page, tmp_path):
    """Its numbers of sequences begin anew; its steps go on."""
    lines = recorded[0].splitlines()
    header, last = json.loads(lines[0]), max(json.loads(line).get("step", 0) for line in lines if '"plan"' in line)
    second = {"line": "submit", "n": 0, "at_s": 999.0, "arrival_s": 999.0, "sequence_id": "b-0", "request_id": "b",
              "lane": "static", "prompt_ids": [1, 2], "params": {}, "seed": 1}  # fmt: skip
    plan = {"line": "plan", "step": last + 1, "now_s": 1000.0, "lane": "static", "rows": [[0, 3, 0, 2]], "blocks": 1}
    more = [{**header, "first_step": last + 1}, second, plan, {"line": "step", "end_s": 1000.5, "ends": [[0, "stop"]]}]
    page = open_page(stage.url)
    load(page, as_file("killed.jsonl", "\n".join([*lines, *map(json.dumps, more), ""])))
    expect(page.get_by_label("Server of the recording")).to_be_hidden()
    step = saved_steps(page, tmp_path)[-1]
    assert (step["step"], step["rows"][0]["sequence_id"], step["rows"][0]["finish"]) == (last + 1, "b-0", "stop")


HEADER = json.dumps(json.loads(RECORDED.read_text().split("\n", 1)[0]))
PLAN = '{"line":"plan","step":0,"now_s":1.0,"lane":"static","rows":[[0,0,0,1]],"blocks":1}'
STEP = '{"line":"step","end_s":1.5}\n'
SUBMIT = (
    '{"line":"submit","n":0,"at_s":1,"arrival_s":1,"sequence_id":"a-0","request_id":"a","lane":"static",'
    '"prompt_ids":[1],"params":{},"seed":1}'
)


STRANGE = [
    ("", "the file is empty"),
    ("\n\n", "the file is empty"),
    ("<!doctype html><p>not found", "line 1 is no line of a recorded schedule"),
    ("[1, 2, 3]\n", "line 1 is no line of a recorded schedule"),
    ("null\n", "line 1 is no line of a recorded schedule"),
    ('{"line":"step","end_s":1}\n', "line 1 stands before any header"),
    ('{"line":"header","schema":7}\n', "line 1 is of schema 7; this page reads schema 1"),
    ('{"line":"header","schema":1}\n', "line 1 is no line of a recorded schedule"),
    (HEADER.replace('"static": 4', '"static": 1e9'), "line 1 is no line of a recorded schedule"),
    (f"{HEADER}\n" + '{"line":"step","end_s":1}\n', "line 2 is a step without its plan"),
    (f"{HEADER}\n{PLAN}\n" + '{"line":"step","end_s":1.5}\n', "line 3 names a sequence that nobody submitted"),
    (f"{HEADER}\n{SUBMIT}\n{SUBMIT}\n", "line 3 is no line of a recorded schedule"),
    (f"{HEADER}\nhalf\n{SUBMIT}\n", "line 2 is no line of a recorded schedule"),
    (f"{HEADER}\n{SUBMIT}\n{PLAN.replace('[[0,0,', '[[0,99,')}\n" + STEP, "line 4 has a seat"),
    (f"{HEADER}\n{SUBMIT}\n{PLAN.replace('[[0,0,0,1]]', '7')}\n", "line 3 is no line of a recorded schedule"),
    (f"{HEADER}\n" + '{"line":"abort"}\n{"line":"valueOf"}\n{"line":"plan"}\n', "line 4 is no line"),
]  # fmt: skip


def test_what_is_no_recording_is_told_with_its_line_and_the_live_page_stays(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    for n, (text, problem) in enumerate(STRANGE):
        load(page, as_file(f"strange{n}.jsonl", text))
        expect(page.get_by_role("alert").filter(has_text=f"strange{n}.jsonl")).to_contain_text(problem)
        expect(page.locator("#header .state")).to_have_text("live")
        expect(page.locator(".lane")).to_have_count(3)


def test_a_line_that_its_writer_did_not_end_is_left_out(stage, open_page, tmp_path):
    page = open_page(stage.url)
    whole = f"{HEADER}\n{SUBMIT}\n{PLAN}\n" + '{"line":"step","end_s":1.5}\n'
    load(page, as_file("cut.jsonl", whole + PLAN[:40]))
    expect(page.locator("#notices .cut")).to_contain_text("cut.jsonl. Its last line is cut")
    assert len(saved_steps(page, tmp_path)) == 1


@pytest.mark.slow
def test_fifty_megabytes_are_read_while_the_page_answers(stage, open_page, tmp_path):
    """Built of one recording's rounds, so that the number of steps is known."""
    lines = [HEADER]
    num_steps = 0
    size = len(HEADER)
    while size < 50 * 2**20:
        n = num_steps // 200
        if num_steps % 200 == 0:
            ids = {"n": n, "sequence_id": f"s{n}-0", "request_id": f"s{n}"}
            lines.append(json.dumps({**json.loads(SUBMIT), **ids, "prompt_ids": list(range(300))}))
        rows = [[n, seat, num_steps % 200 * 3, 1] for seat in range(4)]
        lines.append(json.dumps({**json.loads(PLAN), "step": num_steps, "now_s": num_steps / 100, "rows": rows}))
        ends = {"ends": [[n, "length"]]} if num_steps % 200 == 199 else {}
        lines.append(json.dumps({"line": "step", "end_s": num_steps / 100 + 0.009, "tokens": [[n, 7]] * 4, **ends}))
        size += sum(map(len, lines[-2:])) + 2
        num_steps += 1
    path = tmp_path / "large.jsonl"
    path.write_text("\n".join(lines) + "\n")
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    load(page, path)
    reading = page.get_by_role("alert").filter(has_text=re.compile(r"reading large.jsonl: \d+ %"))
    expect(reading).to_be_visible()  # the page is drawn while it reads
    expect(page.locator("#notices")).to_contain_text("large.jsonl", timeout=120_000)
    page.get_by_role("button", name="Zoom in").click()
    shares = page.locator('.lane[data-policy="static"] .counts')
    expect(shares).to_contain_text("working")
    page.get_by_role("button", name="Back to the live server").click()
    expect(page.locator("#header .state")).to_have_text("live")
