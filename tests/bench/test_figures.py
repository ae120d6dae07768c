"""What is drawn is what the result file says: points, gaps, laws, marks; and the files."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from bench.figures_by_hand import STATIC, result, run
from everystep.bench import figures
from everystep.bench import run as bench_run
from everystep.bench.figures import draw_all, draw_figures, seats_by_load
from everystep.bench.figures.latency import latency_figure
from everystep.bench.figures.look import STYLE, End, framed, label_ends, spread, strokes
from everystep.bench.figures.rounds import prediction_figure, round_law_figure, round_law_s
from everystep.bench.figures.throughput import throughput_figure
from everystep.bench.findings import Findings
from everystep.errors import EverystepError

ROOT = Path(__file__).parents[2]


def axes_of(figure: Figure | None) -> Axes:
    assert figure is not None
    return figure.axes[0]


def points(axes: Axes, **marks: Any) -> list[tuple[list[float], list[float]]]:
    """x and y of each line with these marks."""
    lines = [
        line for line in axes.lines if all(getattr(line, f"get_{name}")() == value for name, value in marks.items())
    ]
    return [([float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]) for line in lines]


def words(figure: Figure | None) -> str:
    assert figure is not None
    axes = [text.get_text() for each in figure.axes for text in each.texts]
    return "\n".join([*(text.get_text() for text in figure.texts), *axes])


# --- throughput ----------------------------------------------------------------------------------
def test_throughput_is_a_line_per_contender_through_its_tokens_per_second() -> None:
    drawn = throughput_figure(
        result(run("static", 1, 1.0), run("static", 4, 2.0), run("continuous", 1, 1.0), run("continuous", 4, 0.5))
    )
    assert points(axes_of(drawn)) == [([1, 4], [10, 20]), ([1, 4], [10, 80])]
    assert "At N = 4, continuous lane makes 4.0 times the tokens of static lane" in words(drawn)
    assert "continuous lane  80.0" in words(drawn), "a name at the line's end"
    assert "model tiny" in words(drawn)
    assert "2 cores of Some CPU" in words(drawn)


def test_a_size_that_a_contender_lacks_is_a_gap_and_no_zero() -> None:
    lacking = [run("continuous", 1, 1.0), run("continuous", 16, 1.0)]
    drawn = throughput_figure(result(*[run("static", n, 1.0) for n in (1, 4, 16)], *lacking))
    ((ns, rates),) = points(axes_of(drawn), marker="^")
    assert ns == [1, 4, 16]
    assert rates[0] == 10
    assert math.isnan(rates[1])
    assert rates[2] == 160


def test_two_contenders_differ_in_more_than_their_colour() -> None:
    names = [("everystep", "static"), ("everystep", "per_token"), ("everystep", "continuous"), ("vllm", "vllm"),
             ("hf-generate", "static"), ("openvino-genai", "continuous"), ("theirs", "a"), ("theirs", "b")]  # fmt: skip
    looks = strokes(names)
    assert len({look.marker for look in looks.values()}) == len(names)
    assert len({look.colour for look in looks.values()}) == len(names)


# --- the round law and predictions -----------------------------------------------------------------
@pytest.mark.parametrize(("n", "rounds"), [(1, 1), (4, 1), (5, 2), (6, 2), (16, 4), (64, 16)])
def test_the_round_law_counts_rounds(n: int, rounds: int) -> None:
    assert round_law_s(n, 4, 0.318) == pytest.approx(rounds * 0.318)


def test_the_law_is_drawn_from_one_prompt_and_from_a_full_round_beside_what_was_measured() -> None:
    drawn = round_law_figure(result(run("static", 1, 0.5), run("static", 4, 0.8), run("static", 8, 1.7)))
    assert points(axes_of(drawn), marker="o") == [([1, 4, 8], [0.5, 0.8, 1.7])]
    laws = points(axes_of(drawn), drawstyle="steps-pre")
    assert laws == [
        ([1, 2, 3, 4, 5, 6, 7, 8], [0.5] * 4 + [1.0] * 4),
        ([1, 2, 3, 4, 5, 6, 7, 8], [0.8] * 4 + [1.6] * 4),
    ]
    assert "the round law says 1.60 s, measured 1.70 s" in words(drawn)


def test_the_law_takes_the_servers_seats() -> None:
    wide = result(run("static", 1, 0.5), run("static", 4, 1.0))
    wide["settings"]["server"]["static_batch_size"] = 2
    assert points(axes_of(round_law_figure(wide)), drawstyle="steps-pre") == [([1, 2, 3, 4], [0.5, 0.5, 1.0, 1.0])]


def test_a_prediction_is_drawn_by_how_much_it_missed() -> None:
    drawn = prediction_figure(
        result(
            run("static", 1, 2.0, predicted_wall_s=2.1),
            run("static", 4, 2.0, predicted_wall_s=1.5),
            run("static", 9, 2.0),
        )
    )
    assert [xs for xs, _ in points(axes_of(drawn), marker="o")] == [[pytest.approx(5.0)], [pytest.approx(-25.0)]]
    assert "1 of 2 predictions within 10 %; the worst misses by 25 % (static lane, N = 4)" in words(drawn)


# --- latency -------------------------------------------------------------------------------------
def test_latency_shows_median_and_p99_by_rate_with_saturated_rates_ringed() -> None:
    drawn = latency_figure(
        result(
            run("static", 9, 4.0, rate=2.0, is_saturated=True),
            run("static", 9, 1.0, rate=1.0, is_saturated=False),
            run("static", 9, 3.0, rate=None),
        )
    )
    axes = axes_of(drawn)
    assert points(axes, markersize=6) == [([1, 2], [0.5, 2.0]), ([1, 2], [1.0, 4.0])]
    assert points(axes, markersize=12) == [([2], [2.0]), ([2], [4.0])]
    assert "static lane: 1/s" in words(drawn)
    assert "ringed: saturated" in words(drawn)


def test_a_latency_that_nobody_measured_is_a_gap() -> None:
    silent = run("static", 9, 1.0, rate=2.0)
    silent["tpot_s"] = dict.fromkeys(silent["tpot_s"])
    drawn = latency_figure(result(run("static", 9, 1.0, rate=1.0), silent))
    assert drawn is not None
    ((_, p50), _) = points(drawn.axes[1])
    assert p50[0] == 0.5
    assert math.isnan(p50[1])
    assert "ringed" not in words(drawn)


# --- labels --------------------------------------------------------------------------------------
def test_labels_that_would_touch_share_the_room_round_their_middle() -> None:
    assert spread([0.0, 100.0, 101.0], 10.0) == pytest.approx([0.0, 95.5, 105.5])
    assert spread([5.0, 5.0, 5.0], 2.0) == pytest.approx([3.0, 5.0, 7.0])
    assert spread([30.0, 0.0], 10.0) == [30.0, 0.0]


def test_no_label_is_drawn_over_another() -> None:
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = framed(4.0, "title", ["small"], right_in=2.0)
        axes = figure.add_subplot()
        axes.set_ylim(0, 100)
        label_ends(axes, [End(1.0, height, f"line {height}", "black") for height in (50.0, 50.1, 51.0, 10.0)])
        figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # of the words, without the leader
    assert len(boxes) == 4
    assert not any(one.overlaps(two) for place, one in enumerate(boxes) for two in boxes[:place])
    assert all(box.x1 <= figure.bbox.x1 for box in boxes), "nor cut off"


# --- files ---------------------------------------------------------------------------------------
def test_what_has_no_data_is_left_out_in_one_line(tmp_path: Path) -> None:
    said: list[str] = []
    assert draw_figures(result(run("continuous", 4, 1.0)), tmp_path, say=said.append) == []
    (line,) = said
    for name in ("throughput", "round-law", "prediction", "latency", "seats"):
        assert f"{name} (" in line
    assert list(tmp_path.iterdir()) == []


def test_every_figure_is_written_twice_and_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    runs = [run("static", 1, 1.0, predicted_wall_s=1.0), run("static", 8, 1.0), run("static", 8, 1.0, rate=1.0)]
    said: list[str] = []
    for name in ("one", "two"):
        files = draw_figures(result(*runs), tmp_path / name, {"static": STATIC}, said.append)
    names = ["throughput", "round-law", "prediction", "latency", "seats"]
    assert [path.name for path in files] == [f"{name}{suffix}" for name in names for suffix in (".svg", ".png")]
    assert said == []
    for path in files:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
            assert "some/folder" not in path.read_text(encoding="utf-8")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_the_lanes_of_a_load_share_a_figure_of_seats() -> None:
    logs = {"steps-static-16.json": {"static": [1]}, "steps-per_token-16.json": {"per_token": [2]},
            "steps-mine-static-0.5.json": {"static": [3]}}  # fmt: skip
    assert seats_by_load(logs) == {  # type: ignore[arg-type]
        "seats-16": {"static": [1], "per_token": [2]},
        "seats-0.5": {"mine-static": [3]},
    }


def redraw(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everystep.bench.figures", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_a_results_folder_is_drawn_again_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(result(run("static", 1, 1.0), run("static", 2, 1.0))))
    (tmp_path / "steps-static-2.json").write_text(json.dumps({"static": STATIC}))
    done = redraw(tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"throughput.svg", "throughput.png", "seats-2.svg", "seats-2.png"}
    nothing = redraw(tmp_path / "nowhere")
    assert nothing.returncode == 1
    assert len(nothing.stderr.splitlines()) == 1


def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "can_draw", lambda: False)
    with pytest.raises(EverystepError, match=r"pip install 'everystep\[bench\]'"):
        draw_all(result(), tmp_path, {})


# --- at the end of a benchmark -------------------------------------------------------------------
class Said:
    """A progress bar's voice."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, words: str) -> None:
        self.lines.append(words)


def test_a_benchmark_draws_its_figures_beside_its_files(tmp_path: Path) -> None:
    findings = Findings(step_logs={"steps-static-2.json": {"static": STATIC}})
    bench_run._draw(result(run("static", 1, 1.0), run("static", 2, 1.0)), findings, tmp_path, Said())  # type: ignore[arg-type]
    assert {path.name for path in (tmp_path / "figures").glob("*.svg")} == {"throughput.svg", "seats-2.svg"}


def test_a_benchmark_without_matplotlib_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_run, "can_draw", lambda: False)
    bar = Said()
    bench_run._draw(result(), Findings(), tmp_path, bar)  # type: ignore[arg-type]
    assert bar.lines == [figures.NEEDS_MATPLOTLIB]
    assert list(tmp_path.iterdir()) == []
