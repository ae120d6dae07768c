"""What the page's pictures of seats show, pixel by pixel, is what the scheduler did."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from browser.seat_pixels import GROUND, TimeScale, canvas_of, cell_colours, colour, is_like, read_pixels

LENGTHS = [2, 5, 3, 4, 3, 2]  # tokens of six prompts; no two neighbours alike
ROUNDS = [LENGTHS[:4], LENGTHS[4:]]


def send(stage, policy: str, lengths: list[int]):
    prompts = [{"prompt": f"p{n}", "max_tokens": length} for n, length in enumerate(lengths)]
    return stage.start(stage.server.post("/try", prompts=prompts, policy=policy, ignore_eos=True))


def run(stage, page, policy: str, lengths: list[int], num_steps: int) -> list[dict[str, object]]:
    """Step by step, so that none is too short to be seen; then all of it in view, and time stands."""
    stage.runner.hold()
    sending = send(stage, policy, lengths)
    for _ in range(num_steps):
        stage.steps(1)
    assert sending.result(60).status_code == 200
    expect(page.locator(f'.lane[data-policy="{policy}"] .counts')).to_contain_text("working")
    steps = stage.log(policy)
    assert len(steps) == num_steps
    show_all(page)
    for _ in range(200):
        if steps_in_view(page) >= {step["step"] for step in steps}:
            return steps
        page.locator("#controls").get_by_role("button", name="All", exact=True).click()
    raise AssertionError("the last steps never came to the page")


def steps_in_view(page) -> set[int]:
    """Their numbers, as the page itself saves them."""
    with page.expect_download() as started:
        page.get_by_role("button", name="Save steps").click()
    return {step["step"] for step in json.loads(started.value.path().read_text())["steps"]}


def show_all(page) -> None:
    page.locator("#controls").get_by_role("button", name="Pause").click()
    page.locator("#controls").get_by_role("button", name="All", exact=True).click()


def expected_state(lengths: list[int], seat: int, n: int) -> str:
    """Of a seat in a static round of these lengths, at its step ``n``: read, write, then hold until all are done."""
    if seat >= len(lengths):
        return "empty"
    if n == 0:
        return "prefill"
    return "decode" if n < lengths[seat] else "held"


def whole_run(page, policy: str, steps, num_rows: int, scheme: str = "light"):
    """Pixels and scale, once the last steps have come to the page too: then the last busy column stays."""
    last = None
    for _ in range(100):
        pixels = read_pixels(page, policy, num_rows)
        columns = pixels.busy_columns(scheme)
        if columns and columns == last:
            return pixels, TimeScale(pixels, steps, scheme)
        last = columns
        page.locator("#controls").get_by_role("button", name="All", exact=True).click()
    raise AssertionError("the picture never came to rest")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_six_prompts_to_static_are_seen_as_rounds_of_four_and_two_with_their_held_seats(stage, open_page, scheme):
    page = open_page(stage.url, color_scheme=scheme)
    expect(page.locator(".lane")).to_have_count(3)
    steps = run(stage, page, "static", LENGTHS, num_steps=8)
    pixels, scale = whole_run(page, "static", steps, 4, scheme)
    turns = [(ROUNDS[0], n) for n in range(5)] + [(ROUNDS[1], n) for n in range(3)]
    first_of_round = [steps[0], steps[5]]
    seen = {"prefill": 0, "decode": 0, "held": 0, "empty": 0}
    for step, (lengths, n) in zip(steps, turns, strict=True):
        begin = first_of_round[ROUNDS.index(lengths)]
        for seat in range(4):
            state = expected_state(lengths, seat, n)
            seen[state] += 1
            check_cell(pixels, scale, step, seat, state, begin["rows"], scheme)
    assert seen == {"prefill": 6, "decode": 13, "held": 7, "empty": 6}


def check_cell(pixels, scale, step, seat: int, state: str, rows, scheme: str) -> None:
    x = scale.middle(step)
    where = f"seat {seat}, step {step['step']}, {state}"
    if state == "empty":
        assert is_like(pixels.at(x, pixels.seat_y(seat)), colour(GROUND[scheme]["seat"])), where
        return
    wanted = cell_colours(rows[seat]["sequence_id"], scheme)[state]
    if state != "held":
        assert is_like(pixels.at(x, pixels.seat_y(seat)), wanted), where
        return
    found = pixels.colours_in(x - 3, x + 3, seat)
    assert any(is_like(one, wanted) for one in found), where
    panel = colour(GROUND[scheme]["panel"])
    assert any(distance(one, panel) < distance(one, wanted) for one in found), f"{where}: no hatching"


def distance(one, other) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def test_ends_are_marked_and_a_round_begins_with_a_line_through_all_seats(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    steps = run(stage, page, "static", LENGTHS, num_steps=8)
    pixels, scale = whole_run(page, "static", steps, 4)
    ink = colour(GROUND["light"]["ink"])
    ends = {(0, 1), (1, 4), (2, 2), (3, 3), (0, 7), (1, 6)}  # seat and step of each prompt's last token
    for seat in range(4):
        y = pixels.seat_y(seat) + 8
        for n, step in enumerate(steps):
            right = scale.x(step["end_s"])
            is_marked = any(is_like(pixels.at(right - back, y), ink) for back in (1, 2, 3, 4))
            assert is_marked == ((seat, n) in ends) or n == 4, f"seat {seat}, step {n}"
        left = scale.x(steps[5]["start_s"])
        assert any(is_like(pixels.at(left + by, y), ink) for by in (-2, -1, 0, 1, 2)), f"no border at seat {seat}"


def test_sixteen_prompts_to_continuous_refill_four_seats_without_a_gap(start_stage, open_page):
    stage = start_stage(max_num_seqs=4)
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    lengths = [2 + n % 5 for n in range(16)]
    stage.runner.hold()
    sending = send(stage, "continuous", lengths)
    while sum(row["finish"] is not None for step in stage.log() for row in step["rows"]) < 16:
        stage.steps(1)
    assert sending.result(60).status_code == 200
    show_all(page)
    steps = stage.log("continuous")
    pixels, scale = whole_run(page, "continuous", steps, 4)
    blank = colour(GROUND["light"]["seat"])
    last_start = max(step["start_s"] for step in steps if any(row["phase"] == "prefill" for row in step["rows"]))
    began = set()
    for step in steps:
        for seat in range(4):
            found = pixels.at(scale.middle(step), pixels.seat_y(seat))
            if step["start_s"] <= last_start:
                assert not is_like(found, blank), f"seat {seat} is empty at step {step['step']} though prompts wait"
            began |= {
                row["sequence_id"]
                for row in step["rows"]
                if row["seat"] == seat and is_like(found, cell_colours(row["sequence_id"], "light")["prefill"])
            }
    assert len(began) == 16, "each prompt's first step is seen in the shade of prefill"


def test_a_busy_page_on_a_phone_is_no_wider_than_the_phone(stage, open_page):
    page = open_page(stage.url, viewport={"width": 390, "height": 844}, has_touch=True)
    expect(page.locator(".lane")).to_have_count(3)
    run(stage, page, "static", LENGTHS, num_steps=8)
    box = canvas_of(page, "static").bounding_box()
    canvas_of(page, "static").hover(position={"x": box["width"] / 2 - 5, "y": 10})
    expect(page.locator('.lane[data-policy="static"] .tip')).to_be_visible()
    assert page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]") == [390, 390]
