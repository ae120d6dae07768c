"""Time on the page: it goes on, stands, is moved and zoomed, and nothing jumps that nobody moved."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.seat_pixels import canvas_of, cell_colours, is_like, read_pixels
from browser.test_seats_shown import LENGTHS, run, send, whole_run

STATIC = '.lane[data-policy="static"]'


def controls(page):
    return page.locator("#controls")


def press(page, name: str) -> None:
    controls(page).get_by_role("button", name=name, exact=True).click()


def ready(stage, page):
    expect(page.locator(".lane")).to_have_count(3)
    steps = run(stage, page, "static", LENGTHS, num_steps=8)
    return steps, *whole_run(page, "static", steps, 4)


def width_of_run(page) -> int:
    columns = read_pixels(page, "static", 4).busy_columns()
    return columns[-1] + 1 - columns[0]


def test_a_picture_that_was_stopped_stays_as_it_is_while_steps_come_and_follows_again_when_told(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    for _ in range(4):
        press(page, "Zoom in")
    stage.runner.hold()
    sending = send(stage, "static", [8] * 6)
    for _ in range(5):
        stage.steps(1)
    expect(page.locator(f"{STATIC} .counts")).to_contain_text("100 % working")
    press(page, "Pause")
    before = read_pixels(page, "static", 4)
    known = before.busy_columns()[-1] - 4  # the step that runs at this moment is drawn when it is known
    for _ in range(11):
        stage.steps(1)
    assert sending.result(60).status_code == 200
    expect(page.locator(f"{STATIC} .counts")).to_contain_text("0 running")
    after = read_pixels(page, "static", 4)
    assert (before.width, before.height) == (after.width, after.height)
    for y in range(before.height):
        start = y * before.width * 4
        assert before.data[start : start + known * 4] == after.data[start : start + known * 4], f"row {y}"
    page.keyboard.press("End")
    expect(controls(page).get_by_role("button", name="Pause")).to_be_visible()
    last = cell_colours(stage.log("static")[-1]["rows"][0]["sequence_id"], "light")["decode"]
    pixels = read_pixels(page, "static", 4)
    assert any(is_like(pixels.at(x, pixels.seat_y(0)), last) for x in range(pixels.width))


def test_seats_that_are_used_while_time_stands_change_no_height_until_it_goes_on(start_stage, open_page):
    stage = start_stage(max_num_seqs=64)
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    press(page, "Pause")
    canvas = canvas_of(page, "continuous")
    before = canvas.bounding_box()["height"]
    assert send(stage, "continuous", [3] * 64).result(60).status_code == 200
    counts = page.locator('.lane[data-policy="continuous"] .counts')
    expect(counts).to_contain_text("4 of 64 seats shown")
    expect(page.locator("#controls input[type=range]")).not_to_have_attribute("max", "0.001")
    assert canvas.bounding_box()["height"] == before
    press(page, "Follow")
    expect(counts).not_to_contain_text("seats shown")
    assert canvas.bounding_box()["height"] > before


@pytest.mark.parametrize(
    ("act", "factor"),
    [
        (lambda page: press(page, "Zoom in"), 1.5),
        (lambda page: press(page, "Zoom out"), 1 / 1.5),
        (lambda page: page.keyboard.press("+"), 1.5),
        (lambda page: page.keyboard.press("-"), 1 / 1.5),
    ],
    ids=["button in", "button out", "key in", "key out"],
)
def test_buttons_and_keys_zoom_by_half_as_much_again(stage, open_page, act, factor):
    page = open_page(stage.url)
    ready(stage, page)
    press(page, "Zoom out")  # so that there is room
    press(page, "Zoom out")
    before = width_of_run(page)
    act(page)
    assert width_of_run(page) == pytest.approx(before * factor, rel=0.02, abs=1 + max(1, factor))  # whole pixels


def test_a_wheel_with_control_zooms_around_the_pointer(stage, open_page):
    page = open_page(stage.url)
    steps, pixels, scale = ready(stage, page)
    x = scale.middle(steps[3]) / pixels.ratio
    canvas_of(page, "static").hover(position={"x": x, "y": 10})
    words = page.locator(f"{STATIC} .tip").inner_text()
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, 200)
    page.keyboard.up("Control")
    columns = read_pixels(page, "static", 4).busy_columns()
    width = columns[-1] + 1 - columns[0]
    assert width < 0.6 * pixels.width
    shrunk = width / (scale.x(steps[-1]["end_s"]) - scale.x(steps[0]["start_s"]))
    assert columns[0] == pytest.approx(x - (x - scale.x(steps[0]["start_s"])) * shrunk, abs=3)
    canvas_of(page, "static").hover(position={"x": x + 1, "y": 10})
    assert page.locator(f"{STATIC} .tip").inner_text().split(" · ")[:2] == words.split(" · ")[:2]


def test_a_drag_moves_the_picture_with_the_hand_and_to_the_present_it_follows_again(stage, open_page):
    page = open_page(stage.url)
    ready(stage, page)
    press(page, "Zoom out")
    before = read_pixels(page, "static", 4).busy_columns()[0]
    box = canvas_of(page, "static").bounding_box()
    drag(page, box["x"] + 500, box["x"] + 560, box["y"] + 10)
    assert read_pixels(page, "static", 4).busy_columns()[0] == pytest.approx(before + 60, abs=2)
    assert page.get_by_role("dialog").count() == 0, "a drag is no click"
    for _ in range(40):
        if controls(page).get_by_role("button", name="Pause").count():
            return
        drag(page, box["x"] + box["width"] - 5, box["x"] + 5, box["y"] + 10)
        press(page, "Zoom out")
    raise AssertionError("it never came to the present")


def drag(page, from_x: float, to_x: float, y: float) -> None:
    page.mouse.move(from_x, y)
    page.mouse.down()
    page.mouse.move((from_x + to_x) / 2, y)
    page.mouse.move(to_x, y)
    page.mouse.up()


def test_the_slider_scrubs_from_the_first_step_to_the_present(stage, open_page):
    page = open_page(stage.url)
    steps, pixels, scale = ready(stage, page)
    slider = controls(page).get_by_role("slider")
    middle = (steps[3]["start_s"] + steps[3]["end_s"]) / 2
    slider.evaluate("(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }", middle)
    columns = read_pixels(page, "static", 4).busy_columns()
    assert columns[-1] == pixels.width - 1, "the right edge is in the middle of a step"
    assert columns[-1] - columns[0] == pytest.approx(scale.x(middle) - scale.x(steps[0]["start_s"]), abs=3)
    page.keyboard.press("End")
    expect(controls(page).get_by_role("button", name="Pause")).to_be_visible()


def test_keys_that_mean_something_else_where_one_is_go_on_meaning_it(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("")
    prompt.press_sequentially("a + 0")
    expect(prompt).to_have_value("a + 0")
    expect(controls(page).get_by_role("button", name="Pause")).to_be_visible()
    canvas_of(page, "static").focus()
    page.keyboard.press("Space")
    expect(controls(page).get_by_role("button", name="Follow")).to_be_visible()
    controls(page).get_by_role("button", name="Follow").focus()
    page.keyboard.press("Space")
    expect(controls(page).get_by_role("button", name="Pause")).to_be_visible()


def seconds_of(page) -> float:
    """The time at the right edge, as the page tells it."""
    return float(controls(page).locator("output").inner_text().removesuffix(" s"))


def test_nobody_zooms_into_the_future(stage, open_page):
    page = open_page(stage.url)
    ready(stage, page)  # time stands
    for _ in range(12):
        page.keyboard.press("-")
        page.keyboard.press("ArrowRight")
    told = seconds_of(page)
    assert told <= stage.client.get("/figures").json()["now_s"] + 0.01
    for _ in range(12):
        page.keyboard.press("+")
    assert seconds_of(page) <= stage.client.get("/figures").json()["now_s"] + 0.01


def test_who_was_stopped_waits_no_longer_though_time_stands(stage, open_page):
    """The last step that was made still names them; nothing is known of the time behind its end."""
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    stage.runner.hold()
    page.locator("#try select").select_option("static")
    page.get_by_role("button", name="Send").click()
    stage.steps(3)
    line = page.locator(f"{STATIC} .line h3")
    expect(line).to_have_text("Waiting: 12")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(f"{STATIC} .counts")).to_contain_text("0 running · 0 waiting")
    stage.runner.release()
    expect(line).to_have_text("Nobody waits")
    press(page, "Pause")
    expect(line).to_have_text("Nobody waits")


def test_time_stands_while_no_server_answers(stage, open_page):
    page = open_page(stage.url, is_checked=False)  # the browser itself notes an aborted request as an error
    ready(stage, page)
    counts = page.locator(f"{STATIC} .counts")
    expect(counts).to_contain_text("0 running · 0 waiting")
    page.route("**/figures", lambda route: route.abort())
    expect(page.locator("#header .state")).to_have_text("server away")
    expect(counts).not_to_contain_text("running")  # nobody knows
    told = seconds_of(page)
    for _ in range(2):  # it is tried again, half a second and more later
        with page.expect_event("requestfailed"):
            pass
    assert seconds_of(page) == told
    page.unroute("**/figures")
    expect(page.locator("#header .state")).to_have_text("live")
    expect(counts).to_contain_text("0 running · 0 waiting")
