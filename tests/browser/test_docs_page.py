"""The API's page works in a browser: it lists every route, asks nobody else, and sends the key with what is tried."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from browser.staged import staged


def test_the_page_lists_every_operation_of_the_description(stage, open_page):
    page = open_page(f"{stage.url}/docs")
    paths = stage.client.get("/openapi.json").json()["paths"]
    expect(page.locator(".opblock")).to_have_count(sum(len(methods) for methods in paths.values()))
    shown = {one.get_attribute("data-path") for one in page.locator(".opblock-summary-path").all()}
    assert shown == set(paths)


def test_what_generates_comes_first_and_every_group_says_what_it_is(stage, open_page):
    page = open_page(f"{stage.url}/docs")
    expect(page.locator(".opblock-tag").first).to_be_visible()
    groups = page.locator(".opblock-tag")
    assert groups.first.get_attribute("data-tag") == "native"
    paths = stage.client.get("/openapi.json").json()["paths"]
    tags = {tag for methods in paths.values() for operation in methods.values() for tag in operation["tags"]}
    assert {group.get_attribute("data-tag") for group in groups.all()} == tags
    assert all(group.locator("small").inner_text() for group in groups.all())


def test_a_request_is_executed_and_its_reply_shown(stage, open_page):
    page = open_page(f"{stage.url}/docs")
    execute(page, "/version")
    shown = page.locator(".live-responses-table .response .highlight-code code").first
    assert json.loads(shown.inner_text()) == stage.client.get("/version").json()


def test_the_key_is_asked_for_once_a_tab_on_both_pages_and_sent_with_what_is_tried(open_page):
    with staged(api_key=("right",)) as stage:
        page = open_page(f"{stage.url}/docs", is_checked=False)  # the browser itself notes the 401 as an error
        field = page.get_by_label("API key")
        field.fill("wrong")
        field.press("Enter")
        expect(page.get_by_role("alert")).to_have_text("the API key isn't accepted")
        page.get_by_label("API key").fill("right")
        page.get_by_role("button", name="Open").click()
        execute(page, "/version")
        expect(page.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
        assert "right" not in page.locator("#swagger-ui").inner_text(), "the key isn't on the screen"
        page.get_by_role("link", name="The live page").click()
        expect(page.locator("#header .state")).to_have_text("live")
        page.go_back()
        expect(page.locator(".opblock").first).to_be_visible()


def test_the_page_asks_no_other_host_with_a_key_either(open_page):
    with staged(api_key=("right",)) as stage:
        page = open_page(stage.url, is_checked=False)
        page.get_by_label("API key").fill("right")
        page.get_by_label("API key").press("Enter")
        expect(page.locator("#header .state")).to_have_text("live")
        foreign = []
        page.on("request", lambda request: request.url.startswith(stage.url) or foreign.append(request.url))
        page.goto(f"{stage.url}/docs")
        execute(page, "/health")
        assert [url for url in foreign if not url.startswith("data:")] == []


def test_the_frame_is_korean_where_the_browser_is(open_page):
    with staged(api_key=("right",)) as stage:
        page = open_page(f"{stage.url}/docs", is_checked=False, locale="ko-KR")
        page.get_by_label("API 키").fill("right")
        page.get_by_role("button", name="열기").click()
        expect(page.get_by_role("link", name="실시간 페이지")).to_be_visible()


def test_the_page_is_dark_where_the_system_is_and_fits_a_phone(stage, open_page):
    page = open_page(f"{stage.url}/docs", color_scheme="dark", viewport={"width": 390, "height": 844})
    expect(page.locator(".opblock").first).to_be_visible()
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(red, green, blue) < 64
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def execute(page, path):
    """Open a GET without parameters, try it, and wait for the reply."""
    block = page.locator(".opblock-get", has=page.locator(f'[data-path="{path}"]'))
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    block.get_by_role("button", name="Execute").click()
    expect(block.locator(".live-responses-table")).to_be_visible()
