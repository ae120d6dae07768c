"""The waiting line gives each cause with its numbers, and a request's life is told wherever it is asked for."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

RECORDED = Path(__file__).parents[1] / "analysis" / "recorded" / "smollm2.jsonl"
BLOCK_GIB = 32 * 8 / 2**30  # of the fake runner: 32 tokens, 8 bytes each


def prompts(num: int, max_tokens: int = 9, words: int = 1) -> list[dict[str, object]]:
    return [{"prompt": f"p{n} " + "so " * words, "max_tokens": max_tokens} for n in range(num)]


def send(stage, policy: str, sent: list[dict[str, object]], **more: object):
    return stage.start(stage.server.post("/try", prompts=sent, policy=policy, ignore_eos=True, **more))


def line(page, policy: str):
    return page.locator(f'.lane[data-policy="{policy}"] .line')


def causes(page, policy: str) -> list[str]:
    return line(page, policy).locator(".why").all_inner_texts()


def last_step(stage, policy: str) -> dict[str, object]:
    return stage.log(policy)[-1]


def test_no_seat_and_a_round_are_told_with_their_numbers(start_stage, open_page):
    stage = start_stage(max_num_seqs=2)
    page = open_page(stage.url)
    stage.runner.hold()
    sent = [send(stage, policy, prompts(6)) for policy in ("static", "per_token", "continuous")]
    stage.steps(6)
    expect(line(page, "static").locator("li")).to_have_count(2)
    assert set(causes(page, "static")) == {"round running: 4 rows still generating"}
    expect(line(page, "per_token").locator("li")).to_have_count(2)
    assert causes(page, "per_token")[0] == "no seat free: all 4 taken"
    expect(line(page, "continuous").locator("li")).to_have_count(4)
    assert causes(page, "continuous")[0] == "no seat free: all 2 taken"
    check_behind(page, stage, "continuous")
    stage.runner.release()
    assert [one.result(60).status_code for one in sent] == [200] * 3
    for policy in ("static", "per_token", "continuous"):
        expect(line(page, policy).locator("h3")).to_have_text("Nobody waits")


def check_behind(page, stage, policy: str) -> None:
    """Whoever is behind somebody is told behind whom."""
    rows = last_step(stage, policy)["waiting"]
    for row, words in zip(rows, causes(page, policy), strict=True):
        if row["why"] == "behind":
            assert words == f"behind {short(row['behind'])}"


def short(sequence_id: str) -> str:
    """As the page names a sequence: enough of its id to tell it from others."""
    _, request, index = sequence_id.split("-")
    return f"{request[-4:]}-{index}"


def ask(stage, policy: str, num: int, prompt_tokens: int, max_tokens: int):
    """Prompts of so many tokens each, no two with the same beginning."""
    ids = [[10 + n] * prompt_tokens for n in range(num)]
    return stage.start(stage.server.complete(ids, max_tokens=max_tokens, policy=policy, ignore_eos=True))


def test_blocks_are_told_with_how_many_are_needed_and_free(start_stage, open_page):
    """Eight blocks of 32 tokens, and three sequences of three blocks each."""
    stage = start_stage(kv_cache_gib=8 * BLOCK_GIB, prefix_cache=False)
    page = open_page(stage.url)
    stage.runner.hold()
    sent = [ask(stage, "static", 3, prompt_tokens=64, max_tokens=30)]
    stage.steps(1)
    waiting = line(page, "static").locator("li .why")
    expect(waiting).to_have_count(1)
    stage.runner.release()
    assert sent.pop().result(60).status_code == 200
    stage.runner.hold()
    sent.append(ask(stage, "continuous", 3, prompt_tokens=90, max_tokens=3))
    stage.steps(1)
    expect(line(page, "continuous").locator("li .why")).to_have_text(re.compile("block"))
    step = last_step(stage, "continuous")
    (head,) = step["waiting"]
    assert head["why"] == "no_blocks"
    free = step["blocks_total"] - step["blocks_used"]
    assert (head["needs_blocks"], free) == (3, 2)
    assert causes(page, "continuous") == ["no block free: needs 3, 2 free"]
    stage.runner.release()
    assert sent[0].result(60).status_code == 200


def test_a_spent_budget_and_those_behind_are_told(start_stage, open_page):
    stage = start_stage(max_num_seqs=8, max_num_batched_tokens=16)
    page = open_page(stage.url)
    stage.runner.hold()
    sent = send(stage, "continuous", prompts(6, words=20))
    stage.steps(1)
    expect(line(page, "continuous").locator("li")).to_have_count(5)
    rows = last_step(stage, "continuous")["waiting"]
    assert rows[0]["why"] == "no_budget"
    assert causes(page, "continuous")[0] == "the token budget of this step is spent"
    check_behind(page, stage, "continuous")
    stage.runner.release()
    assert sent.result(60).status_code == 200


def test_a_preempted_sequence_waits_and_its_life_says_how_often(start_stage, open_page):
    stage = start_stage(kv_cache_gib=6 * BLOCK_GIB, prefix_cache=False)
    page = open_page(stage.url)
    sent = send(stage, "continuous", prompts(4, max_tokens=50, words=5))
    assert sent.result(60).status_code == 200
    (request_id,) = {row["request_id"] for step in stage.log() for row in step["rows"]}
    life = stage.client.get(f"/requests/{request_id}").json()
    victim = next(one for one in life["sequences"] if one["num_preemptions"])
    expect(page.locator("#header .state")).to_have_text("live")
    stage.runner.hold()
    page.get_by_role("button", name="Pause").click()
    who = victim["sequence_id"]
    at = next(step for step in stage.log() if who in {row["sequence_id"] for row in step["waiting"]})
    slider = page.get_by_role("slider")
    slider.evaluate(
        "(range, at) => { range.value = at; range.dispatchEvent(new Event('input')); }",
        (at["start_s"] + at["end_s"]) / 2,
    )
    expect(line(page, "continuous").locator("li")).to_have_count(len(at["waiting"]))
    line(page, "continuous").get_by_title(who).click()
    dialog = page.get_by_role("dialog")
    times = victim["num_preemptions"]
    expect(dialog.locator("dt:text-is('Preempted') + dd")).to_have_text("once" if times == 1 else f"{times} times")
    expect(dialog).to_contain_text("blocks of KV cache")
    stage.runner.release()


def test_time_waited_goes_on_and_a_row_that_has_the_focus_keeps_it(stage, open_page):
    page = open_page(stage.url)
    stage.runner.hold()
    sent = send(stage, "static", prompts(6))
    stage.steps(1)
    row = line(page, "static").locator("li").first
    row.get_by_role("button").focus()
    before = row.locator(".waited").inner_text()
    expect(row.locator(".waited")).not_to_have_text(before)
    stage.steps(1)
    expect(row.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(row.get_by_role("button")).to_be_focused()
    stage.runner.release()
    assert sent.result(60).status_code == 200


def test_a_long_line_shows_its_head_and_how_many_more(stage, open_page):
    page = open_page(stage.url)
    stage.runner.hold()
    sent = send(stage, "static", prompts(64))
    stage.steps(1)
    expect(line(page, "static").locator("h3")).to_have_text("Waiting: 60")
    rows = line(page, "static").locator("li")
    expect(rows).to_have_count(13)
    expect(rows.last).to_have_text("and 48 more")
    stage.runner.release()
    assert sent.result(60).status_code == 200


def test_those_who_came_since_the_last_step_are_counted_though_no_step_says_why(stage, open_page):
    page = open_page(stage.url)
    stage.runner.hold()
    sent = [send(stage, "static", prompts(2))]
    stage.steps(1)
    sent.append(send(stage, "static", prompts(3)))
    expect(line(page, "static").locator("h3")).to_have_text("Waiting: 3")
    expect(line(page, "static").locator("li")).to_have_text("3 came since the last step; the next one says why")
    stage.steps(2)
    expect(line(page, "static").locator("li").first.locator(".why")).to_have_text(re.compile("round running: 2 rows"))
    stage.runner.release()
    assert [one.result(60).status_code for one in sent] == [200, 200]


def facts(page) -> dict[str, str]:
    dialog = page.get_by_role("dialog")
    return dict(zip(dialog.locator("dt").all_inner_texts(), dialog.locator("dd").all_inner_texts(), strict=True))


def test_a_life_is_told_while_it_waits_while_it_runs_and_when_it_has_ended(stage, open_page):
    page = open_page(stage.url)
    stage.runner.hold()
    sent = send(stage, "static", prompts(5, max_tokens=6))
    stage.steps(2)
    line(page, "static").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("the running round to end")
    waiting = facts(page)
    assert (waiting["State"], waiting["Steps"], waiting["Number"]) == ("waiting", "0", "5 of 5 in its request")
    assert "Seats" not in waiting
    stage.steps(5)  # the round's last four, and the second round's first
    expect(dialog.locator("dt:text-is('State') + dd")).to_have_text("running")
    running = facts(page)
    assert running["Seats"] == "0"
    stage.runner.release()
    assert sent.result(60).status_code == 200
    expect(dialog.locator("dt:text-is('End') + dd")).to_have_text("length")
    (request_id,) = {row["request_id"] for step in stage.log() for row in step["rows"]}
    truth = stage.client.get(f"/requests/{request_id}").json()["sequences"][4]
    ended = facts(page)
    assert ended["Output"] == "6 tokens"
    assert ended["Prompt"] == f"{truth['prompt_tokens']} tokens"
    assert ended["Steps"] == "6"
    expect(dialog.get_by_role("button", name="Close")).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_each_of_several_choices_has_a_life_of_its_own(stage, open_page):
    page = open_page(stage.url)
    stage.runner.hold()
    sent = stage.start(
        stage.server.complete("many", n=6, temperature=1.0, max_tokens=5, policy="static", ignore_eos=True)
    )
    stage.steps(1)
    rows = line(page, "static").get_by_role("button")
    expect(rows).to_have_count(2)
    for row, place in zip(rows.all(), ("5 of 6", "6 of 6"), strict=True):
        row.click()
        expect(page.get_by_role("dialog")).to_contain_text(f"{place} in its request")
        page.keyboard.press("Escape")
    stage.runner.release()
    assert sent.result(60).status_code == 200


def test_a_life_that_the_server_has_forgotten_is_read_from_the_steps(stage, open_page):
    page = open_page(stage.url, is_checked=False)  # the browser itself notes the 404 as an error
    stage.runner.hold()
    sent = send(stage, "static", prompts(5))
    stage.steps(1)
    expect(line(page, "static").get_by_role("button")).to_be_visible()
    error = {"error": {"type": "not_found", "message": "no such request", "param": None}}
    page.route("**/requests/*", lambda route: route.fulfill(status=404, json=error))
    line(page, "static").get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("The server remembers no such request any more")
    assert facts(page)["Lane"] == "static"
    page.unroute("**/requests/*")
    page.keyboard.press("Escape")
    stage.runner.release()
    assert sent.result(60).status_code == 200


def test_lives_of_a_recording_are_read_from_it_and_those_of_a_run_from_the_server(stage, open_page):
    page = open_page(stage.url)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    page.locator('#controls input[type="file"]').set_input_files(RECORDED)
    expect(page.locator("#header .state")).to_have_text("recording")
    page.locator("#try .texts button").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("dt:text-is('End') + dd")).to_have_text("length")
    assert facts(page)["Output"] == "12 tokens"
    box = dialog.bounding_box()
    above, below = box["y"], page.viewport_size["height"] - box["y"] - box["height"]
    assert abs(above - below) <= 2, "it stands in the middle"
    page.keyboard.press("Escape")
    page.locator('.lane[data-policy="static"] canvas').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(dialog.locator("dt:text-is('End') + dd")).to_have_text(re.compile("length|stop|aborted"))
    told = facts(page)
    assert told["Lane"] == "static"
    assert "Output" not in told, "a recording's rows don't say it"
