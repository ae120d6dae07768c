"""The page by keyboard alone, for those who hear it, on a phone, in the dark, and without motion."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

LANES = ("static", "per_token", "continuous")
DESCRIBE = """() => {
  const node = document.activeElement;
  const style = getComputedStyle(node);
  const label = node.matches("input[type=radio]") ? getComputedStyle(node.nextElementSibling) : style;
  const box = node.getBoundingClientRect();
  return { tag: node.tagName, name: node.name || node.textContent,
           outline: label.outlineStyle, width: label.outlineWidth, isInside: box.width > 0 && box.height > 0 };
}"""


def tabbed(page, most: int = 60) -> list[dict[str, object]]:
    """What the Tab key comes by, once around."""
    stops: list[dict[str, object]] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        stop = page.evaluate(DESCRIBE)
        if stop["tag"] == "BODY":
            break
        stops.append(stop)
    return stops


def test_the_keyboard_comes_by_every_control_and_its_focus_is_seen(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    stops = tabbed(page)
    names = [str(stop["name"]) for stop in stops]
    for wanted in (
        "language",
        "theme",
        "prompt",
        "lane",
        "count",
        "Send",
        "Pause",
        "Save as SVG",
        "Save as trace",
        "Save steps",
    ):
        assert wanted in names, names
    assert [stop["tag"] for stop in stops].count("CANVAS") == 3
    for stop in stops:
        assert stop["isInside"], stop
        assert (stop["outline"], stop["width"]) != ("none", "0px"), stop
        assert stop["outline"] != "none", stop


def test_a_run_is_started_watched_and_stopped_by_keys_alone(stage, open_page):
    page = open_page(stage.url)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    stage.runner.hold()
    page.get_by_label("Prompt", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.type("static")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")  # from 16 to 4
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    texts = page.locator("#try .texts li")
    expect(texts).to_have_count(4)
    expect(texts.first.get_by_role("button")).to_be_enabled()
    stage.steps(2)
    texts.first.get_by_role("button").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 of 4 in its request")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(texts.first.get_by_role("button")).to_be_focused()
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#try .progress")).to_have_text("stopped")
    stage.runner.release()


def test_parts_and_controls_have_names(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    for role, name in (
        ("banner", None), ("main", None), ("region", "Try it"), ("region", "Figures"), ("heading", "everystep"),
        ("textbox", "Prompt"), ("combobox", "Lane"), ("group", "Prompts at once"), ("combobox", "Language"),
        ("combobox", "Colours"), ("slider", None), *(("region", lane) for lane in LANES),
    ):  # fmt: skip
        expect(page.get_by_role(role, name=name, exact=True) if name else page.get_by_role(role)).to_have_count(1)
    for count in (1, 4, 16, 64):
        expect(page.get_by_role("radio", name=str(count), exact=True)).to_have_count(1)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, textarea, canvas[tabindex]")].filter((node) =>
             node.type !== "file" && !node.textContent.trim() && !node.getAttribute("aria-label")
             && !node.labels?.length && !node.title).map((node) => node.outerHTML)"""
    )
    assert unnamed == []


def test_a_run_is_said_aloud_once_and_not_with_every_token(stage, open_page):
    page = open_page(stage.url)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()
    conclusion = page.locator("#try .ratio")
    expect(conclusion).to_have_attribute("role", "status")
    assert page.locator("#try .progress").get_attribute("role") is None
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    expect(conclusion).not_to_be_empty()


@pytest.mark.parametrize("locale", ["en-US", "ko-KR"])
@pytest.mark.parametrize("width", [320, 390, 1440])
def test_nothing_is_wider_than_the_window(start_stage, open_page, locale, width):
    stage = start_stage(max_num_seqs=8)
    page = open_page(stage.url, locale=locale, viewport={"width": width, "height": 844})
    send = page.locator("#try button.main")
    expect(send).to_be_enabled()
    page.get_by_role("radio", name="64").check(force=True)
    send.click()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    expect(send).to_be_enabled()
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    wide = page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((node) => {
             const box = node.getBoundingClientRect();
             return box.width > 0 && box.right > innerWidth + 1 && getComputedStyle(node).clipPath === "none";
           }).map((node) => node.outerHTML.slice(0, 120))"""
    )
    assert wide == []


CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((c) => c / 255)
      .map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => { for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!colour.endsWith(", 0)")) return colour; } return "rgb(255, 255, 255)"; };
  const all = [...document.querySelectorAll("h1, h2, h3, p, li, th, td, span, button, label, option, legend")];
  const hasWords = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  return all.filter((node) => hasWords(node) && node.checkVisibility() && !node.disabled).map((node) => {
    const [a, b] = [luminance(getComputedStyle(node).color), luminance(behind(node))];
    return { words: node.textContent.slice(0, 40), ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
  }).filter(({ ratio }) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(stage, open_page, scheme):
    """The least contrast that WCAG 2.2 wants of text (1.4.3, AA): 4.5 to 1."""
    page = open_page(stage.url, color_scheme=scheme)
    expect(page.locator("#try button.main")).to_be_enabled()
    page.locator("#try button.main").click()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    assert page.evaluate(CONTRAST) == []


def test_the_dark_is_the_system_s_until_it_is_chosen(stage, open_page):
    page = open_page(stage.url, color_scheme="dark")
    expect(page.locator(".lane")).to_have_count(3)
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.emulate_media(color_scheme="light")
    light = page.evaluate(background)
    assert dark != light
    page.get_by_label("Colours").select_option("dark")
    assert page.evaluate(background) == dark


def test_nothing_is_animated_for_those_who_asked_for_no_motion(stage, open_page):
    page = open_page(stage.url, reduced_motion="reduce")
    expect(page.locator(".lane")).to_have_count(3)
    page.locator("#try button.main").click()
    expect(page.locator("#try tbody tr")).to_have_count(3)
    assert page.evaluate("() => document.getAnimations().length") == 0
