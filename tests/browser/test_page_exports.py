"""What is saved is what is in view, in forms that other programs read."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from browser.page_modules import call

SVG = "{http://www.w3.org/2000/svg}"
LANES = ("static", "per_token", "continuous")


@pytest.fixture
def seen(stage, open_page):
    """``(page, stage)``: three lanes have run, and time stands still behind them, all in view."""
    for lane in LANES:
        prompts = [{"prompt": f"{lane} {n}", "max_tokens": 3 + 4 * n} for n in range(6)]
        stage.run(stage.server.post("/try", prompts=prompts, policy=lane, ignore_eos=True))
    page = open_page(stage.url)
    expect(page.locator('.lane[data-policy="continuous"] .counts')).to_contain_text("working")
    page.get_by_role("button", name="Pause").click()
    return page, stage


def saved(page, button: str, tmp_path):
    with page.expect_download() as started:
        page.get_by_role("button", name=button).click()
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    return path


def test_the_steps_in_view_are_those_of_the_server(seen, tmp_path):
    page, stage = seen
    path = saved(page, "Save steps", tmp_path)
    assert json.loads(path.read_text()) == {"steps": stage.log(), "next": stage.log()[-1]["step"]}


def test_the_svg_has_a_cell_for_each_row_and_nothing_that_runs(seen, tmp_path):
    page, stage = seen
    path = saved(page, "Save as SVG", tmp_path)
    assert path.name == "everystep-seats.svg"
    root = ElementTree.parse(path).getroot()
    rows = [row for step in stage.log() for row in step["rows"]]
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert len(titles) == len(rows)
    wanted = {
        f"{row['sequence_id']}, step {step['step']}: {row['phase']}, {row['new_tokens']} new, "
        f"context {row['context_tokens']}"
        for step in stage.log()
        for row in step["rows"]
    }
    assert set(titles) == wanted
    hatched = [rect for rect in root.iter(f"{SVG}rect") if rect.get("fill") == "url(#held)"]
    assert len(hatched) == sum(row["phase"] == "held" for row in rows) > 0
    headings = [text.text for text in root.iter(f"{SVG}text") if text.get("font-weight") == "600"]
    assert headings == list(LANES)
    allowed = {"svg", "defs", "pattern", "path", "rect", "g", "text", "title"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert not any(name.startswith("on") or "href" in name for element in root.iter() for name in element.attrib)


TURNS = """
(steps) => svgOf([{ policy: "static", seats: 2, steps, indexAt: () => 0 }], 0, 1)
"""


def test_the_svg_tints_a_seat_between_two_steps_of_whoever_keeps_it(chromium):
    """Lanes take turns: a sits through, b gives its seat to c."""
    page = chromium.new_page()
    sitting = [("a", "b"), ("a", "c"), ("a",)]
    rows = {"phase": "decode", "new_tokens": 1, "context_tokens": 9}
    steps = [
        {"step": n, "start_s": 0.2 + 0.3 * n, "end_s": 0.3 + 0.3 * n,
         "rows": [{"seat": seat, "sequence_id": who, **rows} for seat, who in enumerate(people)]}
        for n, people in enumerate(sitting)
    ]  # fmt: skip
    root = ElementTree.fromstring(call(page, "exports", TURNS, steps))
    page.close()
    cells = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "cell"]
    tinted = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "seated"]
    assert [rect.get("y") for rect in tinted] == [cells[0].get("y")] * 2
    starts = sorted({float(cell.get("x")) for cell in cells})
    ends = [float(rect.get("x")) + float(rect.get("width")) for rect in tinted]
    assert ends == pytest.approx(starts[1:], abs=0.02)
    gap = (starts[1] - starts[0]) * 2 / 3  # a step takes 0.1 s, the time between two of them 0.2 s
    assert [float(rect.get("width")) for rect in tinted] == pytest.approx([gap, gap], abs=0.02)


def test_the_svg_s_cells_stand_where_their_steps_do(seen, tmp_path):
    page, stage = seen
    root = ElementTree.parse(saved(page, "Save as SVG", tmp_path)).getroot()
    width = float(root.get("width"))
    for group, lane in zip(root.iter(f"{SVG}g"), LANES, strict=True):
        cells = [rect for rect in group.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
        rows = [(step, row) for step in stage.log(lane) for row in step["rows"]]
        starts = [float(cell.get("x")) for cell in cells]
        assert starts == sorted(starts)
        assert starts[0] >= 0
        assert max(float(cell.get("x")) + float(cell.get("width")) for cell in cells) <= width + 1
        heights = {float(cell.get("y")) for cell in cells}
        assert len(heights) == len({row["seat"] for _, row in rows})


def test_the_trace_has_the_events_that_the_server_s_own_has_for_these_steps(seen, tmp_path):
    page, stage = seen
    ours = json.loads(saved(page, "Save as trace", tmp_path).read_text())
    theirs = stage.client.get("/steps/trace").json()
    assert ours["displayTimeUnit"] == theirs["displayTimeUnit"]
    assert comparable(ours["traceEvents"]) == comparable(theirs["traceEvents"])


def comparable(events: list[dict[str, object]]) -> list[str]:
    """Events without the order that the lanes have in the file; times to a microsecond, as floats are rounded."""
    lanes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    told = []
    for event in events:
        pid = event["pid"]
        place = {"lane": lanes[pid], "thread": event.get("tid", pid) - pid}
        times = {name: round(event[name]) for name in ("ts", "dur") if name in event}
        told.append(json.dumps({**event, **place, **times, "pid": 0, "tid": 0}, sort_keys=True))
    return sorted(told)


def test_only_what_is_in_view_is_saved(seen, tmp_path):
    page, stage = seen
    last = stage.log("static")[-1]
    slide = "(range, at) => { range.value = at; range.dispatchEvent(new Event('input')); }"
    page.get_by_role("slider").evaluate(slide, (last["start_s"] + last["end_s"]) / 2)
    steps = json.loads(saved(page, "Save steps", tmp_path).read_text())["steps"]
    assert steps == stage.log("static")


def test_where_nothing_is_in_view_nothing_is_saved_and_that_is_said(stage, open_page):
    page = open_page(stage.url)
    expect(page.locator(".lane")).to_have_count(3)
    page.get_by_role("button", name="Save as SVG").click()
    expect(page.locator("#controls").get_by_role("alert")).to_have_text("nothing is in view")
