"""The page comes whole in one document, runs nothing else, and finds its server again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from browser.staged import staged


def test_the_page_shows_a_section_for_each_lane_and_what_serves(stage, open_page):
    page = open_page(stage.url)
    assert [section.get_attribute("data-policy") for section in page.locator(".lane").all()] == []
    expect(page.locator(".lane")).to_have_count(3)
    lanes = [section.get_attribute("data-policy") for section in page.locator(".lane").all()]
    assert lanes == ["static", "per_token", "continuous"]
    expect(page.locator("#header .state")).to_have_text("live")
    expect(page.locator("#header .facts")).to_contain_text("fake none")


@pytest.mark.parametrize(
    "attempt",
    [
        "document.body.innerHTML = '<b>x</b>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.body.setAttribute('onclick', 'window.ran = 1')",
        "new DOMParser().parseFromString('<b>x</b>', 'text/html')",
        "document.createElement('script').text = 'window.ran = 1'",
    ],
)
def test_the_browser_itself_refuses_what_would_read_text_as_markup_or_code(stage, open_page, attempt):
    page = open_page(stage.url, is_checked=False)
    tried = page.evaluate(f"() => {{ try {{ {attempt}; return 'done'; }} catch (error) {{ return error.name; }} }}")
    assert tried == "TypeError"


def test_the_key_is_asked_for_once_kept_for_the_tab_and_a_wrong_one_is_told(start_stage, open_page):
    stage = start_stage(api_key=("right",))
    page = open_page(stage.url, is_checked=False)  # the browser itself notes the 401 as an error
    field = page.get_by_label("API key")
    field.fill("wrong")
    field.press("Enter")
    expect(page.locator("#notices").get_by_role("alert")).to_have_text("the API key isn't accepted")
    page.get_by_label("API key").fill("right")
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.locator("#header .state")).to_have_text("live")
    page.reload()
    expect(page.locator("#header .state")).to_have_text("live")
    other = open_page(stage.url, is_checked=False)
    expect(other.get_by_label("API key")).to_be_visible()


def test_a_program_without_the_key_gets_an_error_and_no_page():
    with staged(api_key=("right",)) as stage:
        reply = stage.client.get("/", headers={"accept": "*/*"})
        assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_failed")
        page = stage.client.get("/", headers={"accept": "text/html,*/*"})
        assert (page.status_code, page.headers["content-type"]) == (401, "text/html; charset=utf-8")
        for path in ("/steps", "/figures", "/engine", "/try"):
            assert stage.client.get(path, headers={"accept": "text/html"}).status_code == 401


@pytest.mark.parametrize(
    ("locale", "words"), [("ko-KR", "기다리는 요청이 없습니다"), ("en-GB", "Nobody waits"), ("fr-FR", "Nobody waits")]
)
def test_the_page_speaks_the_browser_s_language_where_it_can(stage, open_page, locale, words):
    page = open_page(stage.url, locale=locale)
    expect(page.locator(".line").first).to_contain_text(words)


def test_the_waiting_line_says_why_each_waits_and_a_click_tells_its_life(stage, open_page):
    page = open_page(stage.url)
    stage.runner.hold()
    prompts = [{"prompt": f"p{n}", "max_tokens": 9} for n in range(6)]
    sending = stage.start(stage.server.post("/try", prompts=prompts, policy="static"))
    stage.steps(2)
    line = page.locator('.lane[data-policy="static"] .line li')
    expect(line).to_have_count(2)
    expect(line.first.locator(".why")).to_have_text("round running: 4 rows still generating")
    line.first.get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile("the running round to end"))
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    stage.runner.release()
    assert sending.result(60).status_code == 200
    expect(line).to_have_count(0)
