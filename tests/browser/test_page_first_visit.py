"""What somebody sees who comes for the first time: opens, sends, looks, and changes the language or the window."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from browser.page_modules import call

LANES = ("static", "per_token", "continuous")
PHONE = {"width": 390, "height": 844}


def lane(page, policy: str):
    return page.locator(f'.lane[data-policy="{policy}"]')


def try_all(page, count: int = 16) -> None:
    """So many prompts through all lanes, to the end."""
    send = page.locator("#try button.main")
    expect(send).to_be_enabled()
    page.get_by_role("radio", name=str(count), exact=True).check(force=True)
    send.click()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    expect(send).to_be_enabled()


def test_a_run_that_is_over_at_once_is_in_view_to_its_last_step(stage, open_page, tmp_path):
    """The page's clock may still be some tenths behind, as just after it was opened: the steps' own times decide."""
    page = open_page(stage.url)
    try_all(page)
    with page.expect_download() as started:
        page.get_by_role("button", name="Save steps").click()
    path = tmp_path / "steps.json"
    started.value.save_as(path)
    assert json.loads(path.read_text())["steps"] == stage.log()


def test_all_lanes_of_a_run_and_its_report_are_on_the_first_screen(stage, open_page):
    page = open_page(stage.url, viewport={"width": 1440, "height": 900})
    try_all(page)
    for policy in LANES:
        expect(lane(page, policy).locator("canvas")).to_be_in_viewport(ratio=1)
    expect(page.locator("#try .ratio")).to_be_in_viewport(ratio=1)
    assert page.evaluate("() => scrollY") == 0


def running_on_a_phone(stage, open_page):
    """The page in the midst of a run, whose model is held."""
    page = open_page(stage.url, viewport=PHONE)
    expect(page.locator("#try button.main")).to_be_enabled()
    stage.runner.hold()
    page.locator("#try button.main").click()
    stage.steps(3)
    expect(lane(page, "static").locator("canvas")).to_be_in_viewport(ratio=1)
    return page


def test_on_a_phone_the_lanes_come_into_sight_and_then_the_report(stage, open_page):
    page = running_on_a_phone(stage, open_page)
    expect(page.locator("#try form")).not_to_be_in_viewport()
    stage.runner.release()
    expect(page.locator("#try .ratio")).to_be_in_viewport()


def test_on_a_phone_whoever_moved_the_page_meanwhile_stays_where_they_are(stage, open_page):
    page = running_on_a_phone(stage, open_page)
    page.evaluate("() => document.querySelector('#figures').scrollIntoView()")
    stage.runner.release()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    expect(page.locator("#try button.main")).to_be_enabled()
    expect(page.locator("#figures")).to_be_in_viewport()
    expect(page.locator("#try .ratio")).not_to_be_in_viewport()


def test_another_language_tells_the_same_report_and_a_new_visit_tells_none(stage, open_page):
    page = open_page(stage.url)
    try_all(page, 4)
    cells = page.locator("#try tbody").inner_text()
    page.get_by_label("Language").select_option("ko")
    expect(page.locator("#try h2")).to_have_text("직접 해 보기")
    assert page.locator("#try tbody").inner_text() == cells
    expect(page.locator("#try .ratio")).to_contain_text("레인")
    page.reload()
    expect(page.locator("#try button.main")).to_be_enabled()
    expect(page.locator("#try tbody tr")).to_have_count(0)


def test_a_locked_page_shows_what_it_wants_and_nothing_that_it_lacks(start_stage, open_page):
    stage = start_stage(api_key=("right",))
    page = open_page(stage.url, is_checked=False)  # the browser itself notes the 401 as an error
    expect(page.get_by_label("API key")).to_be_visible()
    for part in ("#try", "#figures", "#controls", "#lanes"):
        expect(page.locator(part)).to_be_hidden()
    expect(page.locator("#header .facts")).to_have_text("")
    page.get_by_label("API key").fill("right")
    page.keyboard.press("Enter")
    for part in ("#try", "#figures", "#controls", "#lanes"):
        expect(page.locator(part)).to_be_visible()


NAMES = """
(widths) => widths.map((width) => {
  const told = [];
  const context = { measureText: (text) => ({ width: 7 * text.length }), fillText: (text) => told.push(text) };
  const row = { sequence_id: "gen-0123456789abcdef-3", phase: "decode", new_tokens: 1, context_tokens: 4096, seat: 0 };
  paintName(context, { ratio: 1, row: 18, gap: 1 }, { font: "", ink: "", places: palette() }, row, 0, width);
  return told;
})
"""


def test_a_cell_s_words_are_whole_or_not_there(chromium):
    """``cdef-3`` is 42 wide in this measure and ``cdef-3  +1 → 4096`` 119; a margin of 4 stands at either side."""
    page = chromium.new_page()
    assert call(page, "seat_paint", NAMES, [49, 50, 126, 127]) == [
        [],
        ["cdef-3"],
        ["cdef-3"],
        ["cdef-3  +1 → 4096"],
    ]
    page.close()


@pytest.mark.parametrize(("at_px", "expected"), [([0, 5, 10], [True] * 3), ([0, 4, 5, 9, 10], [1, 0, 1, 0, 1])])
def test_marks_that_would_touch_are_left_out(chromium, at_px, expected):
    page = chromium.new_page()
    apart = "(at) => { const marked = new Map(); return at.map((x) => isApart(marked, 0, x, { ratio: 1 })); }"
    assert call(page, "seat_paint", apart, at_px) == [bool(one) for one in expected]
    page.close()
