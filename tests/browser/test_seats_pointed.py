"""Whoever points at a seat, with a mouse, a finger or keys, is told who sits there, and may ask for its life."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from playwright.sync_api import expect

from api.harness import ids_of
from browser.seat_pixels import GROUND, canvas_of, cell_colours, colour, is_like, mixed
from browser.test_seats_shown import LENGTHS, run, show_all, whole_run

STATIC = '.lane[data-policy="static"]'


def ready(stage, page):
    """Eight static steps, all in view, and where times are."""
    expect(page.locator(".lane")).to_have_count(3)
    steps = run(stage, page, "static", LENGTHS, num_steps=8)
    pixels, scale = whole_run(page, "static", steps, 4)
    return steps, lambda seat, n: {
        "x": scale.middle(steps[n]) / pixels.ratio,
        "y": (seat + 0.5) * pixels.row_px / pixels.ratio,
    }


def tip(page):
    return page.locator(f"{STATIC} .tip")


def test_a_mouse_is_told_the_request_its_tokens_its_context_and_the_step_s_time(stage, open_page):
    page = open_page(stage.url)
    steps, place = ready(stage, page)
    prompt = len(ids_of("p1"))
    for n, phase in ((0, f"prefill: {prompt} new"), (3, "decode: 1 new")):
        canvas_of(page, "static").hover(position=place(1, n))
        lines = tip(page).inner_text().split("\n")
        ms = (steps[n]["end_s"] - steps[n]["start_s"]) * 1000
        assert re.fullmatch(rf"seat 1 · step {steps[n]['step']} · [0-9.,]+ m?s", lines[0])
        assert abs(float(lines[0].split(" · ")[2].split()[0].replace(",", "")) - ms) <= max(0.5, ms / 100)
        assert lines[1].endswith("-1")
        assert lines[2] == phase
        assert lines[3] == f"{n + 1} token{'s' if n else ''} so far · context {prompt + n}"


def test_held_and_empty_seats_and_ends_are_told_apart(stage, open_page):
    page = open_page(stage.url)
    _, place = ready(stage, page)
    canvas = canvas_of(page, "static")
    canvas.hover(position=place(0, 3))
    expect(tip(page)).to_contain_text("held: ended, its round runs on")
    expect(tip(page)).to_contain_text("2 tokens so far")
    canvas.hover(position=place(3, 6))
    expect(tip(page)).to_contain_text("empty seat")
    canvas.hover(position=place(0, 1))
    expect(tip(page)).to_contain_text("ends here: length")
    page.mouse.move(2, 2)
    expect(tip(page)).to_be_hidden()


def test_a_click_tells_the_life_of_who_sits_there(stage, open_page):
    page = open_page(stage.url)
    steps, place = ready(stage, page)
    canvas_of(page, "static").click(position=place(2, 1))
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading").first).to_have_attribute("title", steps[0]["rows"][2]["sequence_id"])
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_a_finger_is_told_first_and_then_shown_the_life(stage, open_page):
    page = open_page(stage.url, has_touch=True)
    steps, place = ready(stage, page)
    canvas = canvas_of(page, "static")
    canvas.tap(position=place(1, 2))
    expect(tip(page)).to_contain_text("tap again for its life")
    expect(page.get_by_role("dialog")).to_be_hidden()
    canvas.tap(position=place(1, 3))
    expect(page.get_by_role("dialog").get_by_role("heading").first).to_have_attribute(
        "title", steps[0]["rows"][1]["sequence_id"]
    )


def test_arrow_keys_go_from_step_to_step_and_seat_to_seat_and_enter_tells_the_life(stage, open_page):
    page = open_page(stage.url)
    steps, _ = ready(stage, page)
    canvas_of(page, "static").focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp"):  # the first only shows where one is
        page.keyboard.press(key)
    last = steps[-1]["step"]
    expect(tip(page)).to_contain_text(f"seat 0 · step {last}")
    page.keyboard.press("ArrowDown")
    expect(tip(page)).to_contain_text(f"seat 1 · step {last}")
    page.keyboard.press("ArrowLeft")
    expect(tip(page)).to_contain_text(f"seat 1 · step {last - 1}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("heading").first).to_have_attribute(
        "title", steps[5]["rows"][1]["sequence_id"]
    )
    page.keyboard.press("Escape")
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    expect(tip(page)).to_contain_text(f"step {steps[0]['step']}")


def test_steps_that_the_stream_passed_over_are_a_gap_and_no_empty_seats(stage, open_page):
    page = open_page("about:blank", is_checked=False)
    held_back = []
    page.route("**/steps/stream*", lambda route: held_back.append(route) if not held_back else route.continue_())
    page.goto(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    with page.expect_request("**/figures"):
        pass
    stage.runner.hold()
    sending = stage.start(stage.server.post("/generate", prompts=["p"], max_tokens=12, ignore_eos=True))
    for _ in range(12):
        stage.steps(1)
    assert sending.result(60).status_code == 200
    steps = stage.client.get("/steps").json()["steps"]
    told = [*steps[:4], None, *steps[8:]]
    skipped = f'event: skipped\ndata: {{"first":{steps[4]["step"]},"last":{steps[7]["step"]}}}\n\n'
    lines = [skipped if step is None else f"id: {step['step']}\ndata: {json.dumps(step)}\n\n" for step in told]
    held_back[0].fulfill(content_type="text/event-stream", body="".join(lines))
    expect(page.locator(f"{STATIC} .counts")).to_contain_text("working")
    for name in ("Pause", "All"):
        page.locator("#controls").get_by_role("button", name=name, exact=True).click()
    pixels, scale = whole_run(page, "static", steps, 4)
    canvas_of(page, "static").hover(position={"x": scale.middle(steps[5]) / pixels.ratio, "y": 10})
    expect(tip(page)).to_contain_text(f"steps {steps[4]['step']} to {steps[7]['step']} didn't come")
    striped = pixels.colours_in(scale.x(steps[4]["start_s"]) + 4, scale.x(steps[7]["end_s"]) - 4, 3)
    calm = pixels.colours_in(scale.x(steps[8]["start_s"]) + 2, scale.x(steps[11]["end_s"]) - 2, 3)
    assert len(striped) > 2
    assert calm == {(0xEF, 0xEF, 0xEA)}, "an empty seat is blank"


def test_who_sits_while_other_lanes_have_their_turn_is_no_empty_seat(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    stage.runner.hold()
    prompts = [{"prompt": "p", "max_tokens": 6}]
    sent = [
        stage.start(stage.server.post("/try", prompts=prompts, policy=policy, ignore_eos=True))
        for policy in ("static", "per_token")
    ]
    for _ in range(12):
        stage.steps(1)
    assert [one.result(60).status_code for one in sent] == [200, 200]
    show_all(page)
    steps = stage.log("static")
    pixels, scale = whole_run(page, "static", steps, 4)
    turns = [(one["end_s"], other["start_s"]) for one, other in pairwise(steps)]
    end_s, start_s = max(turns, key=lambda turn: turn[1] - turn[0])
    x = (scale.x(end_s) + scale.x(start_s)) / 2
    seat = colour(GROUND["light"]["seat"])
    decode = cell_colours(steps[0]["rows"][0]["sequence_id"], "light")["decode"]
    assert is_like(pixels.at(x, pixels.seat_y(0)), mixed(seat, decode, 0.25))
    assert is_like(pixels.at(x, pixels.seat_y(1)), seat)
    canvas_of(page, "static").hover(position={"x": x / pixels.ratio, "y": 10})
    expect(tip(page)).to_contain_text("seated, between two steps of its lane")
