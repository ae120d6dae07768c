"""Seats over time: a rectangle per stretch where the step log says so, held seats hatched, empty ones blank."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bench.figures_by_hand import STATIC, result, step
from everystep.bench.figures.seat_map import MOST_STEPS, lane_map, origins_s
from everystep.bench.figures.seats import HATCH, seats_figure

Box = tuple[float, float, float, float]


def drawn(figure: Figure | None) -> list[Axes]:
    assert figure is not None
    return figure.axes


def boxes(axes: Axes, *, held: bool) -> list[Box]:
    """Start, end, top and bottom of each rectangle that is hatched, or isn't."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle) and (patch.get_hatch() == HATCH) == held]
    return [
        (patch.get_x(), patch.get_x() + patch.get_width(), patch.get_y(), patch.get_y() + patch.get_height())
        for patch in found
    ]


def test_every_stretch_is_a_rectangle_from_its_first_steps_start_to_its_last_steps_end() -> None:
    panel, _ = drawn(seats_figure(result(), {"static": STATIC}))
    assert boxes(panel, held=False) == [
        (0.0, 1.0, 0, 1),  # a reads
        (0.0, 1.0, 1, 2),  # b reads
        (1.0, 1.5, 0, 1),  # a writes
        (1.0, 2.0, 1, 2),  # b writes, two steps
        (2.0, 3.0, 0, 1),  # c reads
        (3.0, 3.5, 0, 1),  # c writes
    ]
    assert boxes(panel, held=True) == [(1.5, 2.0, 0, 1)]


def test_a_held_seat_is_white_under_its_hatching() -> None:
    panel, _ = drawn(seats_figure(result(), {"static": STATIC}))
    (held,) = [patch for patch in panel.patches if patch.get_hatch()]
    assert to_rgb(held.get_facecolor()) == (1.0, 1.0, 1.0)


def test_prefill_is_darker_than_decode_of_the_same_colour_and_prompts_are_numbered() -> None:
    panel, _ = drawn(seats_figure(result(), {"static": STATIC}))
    reads, writes = (to_rgb(panel.patches[place].get_facecolor()) for place in (0, 2))
    assert writes == pytest.approx(tuple(0.5 + 0.5 * part for part in reads))
    assert sorted(text.get_text() for text in panel.texts) == ["1", "2", "3"]


def test_a_prompt_has_the_same_colour_in_every_lane() -> None:
    other = [step(0, 20.0, 21.0, "1bp 0ap 2cp", policy="continuous")]
    first, second, *_ = drawn(seats_figure(result(), {"static": STATIC, "continuous": other}))
    assert [patch.get_facecolor() for patch in second.patches] == [
        first.patches[place].get_facecolor() for place in (0, 1, 5)
    ]


def test_prompts_of_one_request_are_told_apart_and_those_of_several_share_their_requests_colour() -> None:
    steps = [step(0, 0.0, 1.0, "0ap 1bp 2cp")]
    colours = []
    for requests in (["r", "r", "r"], ["r", "r", "s"]):
        for row, request in zip(steps[0]["rows"], requests, strict=True):
            row["request_id"] = request
        (panel,) = drawn(seats_figure(result(), {"static": steps}))
        colours.append(len({patch.get_facecolor() for patch in panel.patches}))
    assert colours == [3, 2]


def test_the_waiting_line_is_drawn_below_and_left_out_where_nobody_waits() -> None:
    panels = drawn(seats_figure(result(), {"static": STATIC}))
    (line,) = panels[1].lines
    assert list(line.get_xdata()) == [0.0, 1.0, 1.5, 2.0, 3.0, 3.5]
    assert list(line.get_ydata()) == [1, 1, 1, 0, 0, 0]
    assert len(drawn(seats_figure(result(), {"static": STATIC[3:]}))) == 1


def test_steps_with_time_between_them_arent_drawn_as_one() -> None:
    steps = [step(0, 0.0, 1.0, "0ad"), step(1, 5.0, 6.0, "0ad"), step(2, 6.01, 7.0, "0ad")]
    assert [(one.start_s, one.end_s) for one in lane_map(steps, 0.0).stretches] == [(0.0, 1.0), (5.0, 7.0)]


def test_lanes_after_one_another_begin_together_and_lanes_at_the_same_time_keep_their_clock() -> None:
    later = [step(0, 20.0, 21.0, "0zp")]
    assert origins_s({"static": STATIC, "continuous": later}) == {"static": 10.0, "continuous": 20.0}
    beside = [step(0, 12.2, 12.4, "0zp")]
    assert origins_s({"static": STATIC, "continuous": beside}) == {"static": 10.0, "continuous": 10.0}


def test_seats_held_are_counted_among_those_taken() -> None:
    assert lane_map(STATIC, 10.0).held_share == pytest.approx(1 / 8)


def test_a_long_log_is_cut_for_all_lanes_at_the_same_second_and_the_figure_says_so() -> None:
    long = [step(number, number / 10, (number + 1) / 10, "0ad") for number in range(MOST_STEPS + 50)]
    short = [step(0, 500.0, 501.0, "0zd"), step(1, 600.0, 601.0, "0zd")]
    figure = seats_figure(result(), {"static": long, "continuous": short})
    first, second = drawn(figure)
    assert [end for _, end, _, _ in boxes(first, held=False)] == [pytest.approx(MOST_STEPS / 10)]
    assert len(second.patches) == 1, "its second step lies beyond"
    assert figure is not None
    assert any(f"the first {MOST_STEPS / 10:.1f} s alone" in text.get_text() for text in figure.texts)


def test_no_steps_no_figure() -> None:
    assert seats_figure(result(), {"static": []}) is None


def test_a_prompt_whose_seat_time_is_narrower_than_its_number_goes_without() -> None:
    steps = [step(0, 0.0, 0.01, "0ap"), step(1, 0.01, 10.0, "0bp")]
    (panel,) = drawn(seats_figure(result(), {"static": steps}))
    assert [text.get_text() for text in panel.texts] == ["2"]


def test_no_line_is_drawn_before_a_step_that_it_would_hide() -> None:
    steps = [step(0, 0.0, 5.0, "0ad"), step(1, 5.0, 5.001, "0ad"), step(2, 5.001, 10.0, "0ad")]
    (panel,) = drawn(seats_figure(result(), {"static": steps}))
    assert sorted({x for line in panel.lines for x in line.get_xdata() if x == x}) == [0.0, 5.001]


def test_lanes_stand_in_the_same_order_whatever_the_files_order() -> None:
    logs = {name: [step(0, start_s, start_s + 1, "0ap")] for name, start_s in (("continuous", 0.0), ("static", 9.0))}
    assert [axes.get_title(loc="left").split(":")[0] for axes in drawn(seats_figure(result(), logs))] == [
        "static",
        "continuous",
    ]
