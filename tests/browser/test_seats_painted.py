"""How many strokes a row's cells take, and that the strokes cover what the cells would: nothing here is a picture."""

from __future__ import annotations

import pytest

from browser.page_modules import call

PAINTED = """
(steps, pxPerS) => {
  const rects = [];
  const words = [];
  const context = {
    fillRect(x, y, width, height) { rects.push([x, y, width, this.fillStyle]); },
    fillText(text) { words.push(text); },
    measureText: (text) => ({ width: 7 * text.length }),
  };
  const px = (atS) => Math.round(atS * pxPerS);
  const scale = { ratio: 1, pxPerS, px, rows: 1, row: 18, gap: 1, tilePx: 2000, seatsHeight: 18 };
  const place = { decode: "d", prefill: "p", ink: "", prefillInk: "" };
  const look = { font: "", ink: "mark", places: Array(64).fill(place), hatch: "h" };
  const lane = { policy: "continuous", seats: 1, steps, indexAt: () => 0 };
  const state = { isWhole: false, last: null, drawnTo: -Infinity, marked: new Map() };
  paintSteps(context, scale, look, lane, 0, state);
  const [cells, marks] = [false, true].map((isMark) => rects.filter((rect) => (rect[3] === "mark") === isMark));
  return { cells, marks, words };
}
"""


def steps_of(phases: str, step_s: float = 0.05) -> list[dict[str, object]]:
    """A step of one row after another, without a pause: ``p`` prefill, ``d`` decode, ``D`` the sequence's last."""
    steps, number = [], 0
    for at, phase in enumerate(phases):
        row = {
            "seat": 0,
            "sequence_id": f"gen-0-{number}",
            "phase": "prefill" if phase == "p" else "decode",
            "new_tokens": 1,
            "context_tokens": at,
            "finish": "length" if phase == "D" else None,
        }
        steps.append(
            {"step": at, "policy": "continuous", "start_s": at * step_s, "end_s": (at + 1) * step_s, "rows": [row]}
        )
        number += phase == "D"
    return steps


@pytest.fixture
def blank(chromium):
    page = chromium.new_page()
    yield page
    page.close()


def test_far_out_a_row_is_a_stroke_for_each_phase_and_each_sequence(blank):
    """Two pixels a step: 3 of prefill, 97 of decode; then another sequence's 2 and 48.  A mark stands over each end."""
    painted = call(blank, "seat_paint", PAINTED, steps_of("ppp" + 96 * "d" + "D" + "pp" + 47 * "d" + "D"), 40)
    assert [(x, width, colour) for x, _, width, colour in painted["cells"]] == [
        (0, 6, "p"),
        (6, 194, "d"),
        (200, 4, "p"),
        (204, 96, "d"),
    ]
    assert [x + width for x, _, width, _ in painted["marks"]] == [200, 300]
    assert painted["words"] == [], "a number is one step's"


def test_where_there_is_room_each_step_stands_apart_and_has_its_own_words(blank):
    painted = call(blank, "seat_paint", PAINTED, steps_of("pdD"), 4_000)
    assert [(x, width) for x, _, width, _ in painted["cells"]] == [(0, 199), (200, 199), (400, 199)]
    assert [words.rsplit(" ", 1)[1] for words in painted["words"]] == ["0", "1", "2"]


def test_the_pause_between_two_steps_is_no_part_of_a_stroke(blank):
    """It has the tint of whoever keeps the seat."""
    steps = steps_of("pdd")
    for step in steps[1:]:
        step["start_s"] += 0.05
        step["end_s"] += 0.05
    painted = call(blank, "seat_paint", PAINTED, steps, 40)
    assert sorted((x, width, colour) for x, _, width, colour in painted["cells"]) == [
        (0, 2, "p"),
        (2, 2, "d"),
        (4, 4, "d"),
    ]
