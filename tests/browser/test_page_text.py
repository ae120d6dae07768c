"""Whatever a prompt, a model, an id or a file's name holds is text on the page, and nothing leaves for elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from api.harness import ids_of

RECORDED = Path(__file__).parents[1] / "analysis" / "recorded" / "smollm2.jsonl"
HOSTILE = [
    "<img src=x onerror=\"document.title='ran'\">",
    "</script><script>document.title='ran'</script>",
    "<svg onload=document.title='ran'><a href=\"javascript:document.title='ran'\">x</a>",
    "javascript:document.title='ran'//",
    "\u202egnp.exe \u2066 \u2069\u202d right",
    "W" * 3000,
    "nul \u0000 bell \u0007 escape \u001b[31m",
    "{policy} {problem} ${document.title='ran'}",
    "&lt;b&gt; &amp; &#60;",
]


@pytest.fixture
def is_harmless(open_page):
    """``is_harmless(page)``: no script ran, no dialog came, nothing is wider than the window."""
    dialogs = []

    def check(page) -> None:
        page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        assert page.title() == "everystep"
        assert page.locator("script:not([type]), script[type='module']").count() == 2
        assert page.locator("#try img, #try svg, #try a, .lane img, .lane a, #life a, #notices img").count() == 0
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert dialogs == []

    return check


@pytest.mark.parametrize("width", [1440, 390])
def test_prompts_and_texts_of_any_kind_are_shown_as_they_are(stage, open_page, is_harmless, width):
    page = open_page(stage.url, viewport={"width": width, "height": 844})
    expect(page.locator("#try option")).to_have_count(4)
    for text in HOSTILE:
        page.get_by_role("radio", name="1", exact=True).check(force=True)
        page.locator("#try select").select_option("static")
        answer = text[:400]
        say_to_all(stage, answer)
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#try tbody tr")).to_have_count(1)
        expect(page.get_by_role("button", name="Send")).to_be_enabled()
        shown = page.locator("#try .texts .text").evaluate("(node) => node.textContent")
        assert shown != ""
        assert shown[:8] == answer[: len(shown)][:8]
        is_harmless(page)


def say_to_all(stage, answer: str) -> None:
    """The page's prompt has a number in it that we don't know: whatever is asked gets this answer, again and again."""
    ids = ids_of(answer)
    stage.runner._draw = lambda row: ids[row.sequence.num_output_tokens % len(ids)]


def test_a_hostile_prompt_is_sent_as_it_is(stage, open_page, is_harmless):
    page = open_page(stage.url)
    for text in HOSTILE[:5]:
        page.get_by_label("Prompt", exact=True).fill(text)
        with page.expect_request("**/try") as asked:
            page.get_by_role("radio", name="1", exact=True).check(force=True)
            page.get_by_role("button", name="Send").click()
        assert text in asked.value.post_data_json["prompts"][0]["prompt"]
        expect(page.locator("#try tbody tr")).to_have_count(3)
        expect(page.get_by_role("button", name="Send")).to_be_enabled()
    is_harmless(page)


@pytest.mark.parametrize("width", [1440, 390])
def test_ids_models_lanes_and_names_of_a_file_are_text_everywhere(stage, open_page, is_harmless, tmp_path, width):
    header = json.loads(RECORDED.read_text().split("\n", 1)[0])
    seats = {"static": 2, HOSTILE[0]: 2, HOSTILE[4]: 1}
    header |= {"seats": seats, "settings": {"model": HOSTILE[1]}, "runner": HOSTILE[2], "precision": "W" * 300}
    lines = [header]
    for n, text in enumerate(HOSTILE):
        ids = {"sequence_id": text, "request_id": text}
        lines.append(
            {
                "line": "submit",
                "n": n,
                "at_s": 0,
                "arrival_s": 0,
                **ids,
                "lane": HOSTILE[0],
                "prompt_ids": [1],
                "params": {},
                "seed": 1,
            }
        )
    lines.append(
        {"line": "plan", "step": 0, "now_s": 1, "lane": HOSTILE[0], "rows": [[0, 0, 0, 1], [1, 1, 0, 1]], "blocks": 1}
    )
    lines.append({"line": "step", "end_s": 2, "ends": [[0, HOSTILE[0]]]})
    name = "<img src=x onerror=1>\u202egnp.jsonl"
    page = open_page(stage.url, viewport={"width": width, "height": 844})
    file = {"name": name, "mimeType": "text/plain", "buffer": "\n".join(map(json.dumps, lines)).encode()}
    page.locator('#controls input[type="file"]').set_input_files(file)
    notice = page.locator(".notice.recording")
    expect(notice).to_contain_text("<img src=x onerror=1>\ufffdgnp.jsonl")  # what would turn the rest around is seen
    expect(page.locator("#header .facts")).to_contain_text(HOSTILE[1])
    rows = page.locator(".line li")
    expect(rows).to_have_count(len(HOSTILE) - 2)
    for row in range(len(HOSTILE) - 2):
        rows.nth(row).get_by_role("button").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        is_harmless(page)
        page.keyboard.press("Escape")
    is_harmless(page)
    for button in ("Save as SVG", "Save as trace"):
        with page.expect_download() as started:
            page.get_by_role("button", name=button).click()
        check_file(started.value, tmp_path)


def check_file(download, tmp_path) -> None:
    """Well-formed, and nothing in it runs where it is opened."""
    path = tmp_path / download.suggested_filename
    download.save_as(path)
    if path.suffix == ".json":
        names = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
        assert HOSTILE[0] in names
        return
    tags = {element.tag.rsplit("}", 1)[-1] for element in ElementTree.parse(path).iter()}
    assert tags == {"svg", "defs", "pattern", "path", "rect", "g", "text", "title"}


def test_nothing_of_a_recording_is_sent_anywhere(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator("#header .state")).to_have_text("live")
    expect(page.locator(".lane")).to_have_count(3)
    sent = []
    page.on("request", lambda request: sent.append((request.method, request.url, request.post_data)))
    page.locator('#controls input[type="file"]').set_input_files(RECORDED)
    expect(page.locator("#notices")).to_contain_text("smollm2.jsonl")
    page.get_by_role("button", name="Zoom in").click()
    with page.expect_download():
        page.get_by_role("button", name="Save as SVG").click()
    with page.expect_response("**/figures"):
        pass
    away = [(method, url.removeprefix(stage.url)) for method, url, _ in sent if not url.startswith("blob:")]
    assert {(method, path.split("?")[0]) for method, path in away} <= {("GET", "/figures"), ("GET", "/steps/stream")}
    assert all(body is None for _, _, body in sent)


def test_the_page_needs_no_other_host_and_its_policy_allows_none(stage, open_page):
    page = open_page(stage.url, is_checked=False)  # the browser itself notes the refusal as an error
    expect(page.locator("#header .state")).to_have_text("live")
    tried = page.evaluate("() => fetch('http://example.invalid/').then(() => 'went', (error) => error.name)")
    assert tried == "TypeError"
    policy = stage.client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
