"""What one sees, drawn by hand, at every size and in every terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from everystep.top.looks import COLOURS, Looks, looks_of, place_of
from everystep.top.screen import picture
from everystep.top.told import Facts, Figures, SeatSteps, Step, Waiting
from everystep.top.watch import Watch
from top.watched import Source, figures, lane, quantiles, step

URL = "http://127.0.0.1:8000"
A, B, C, D, E, F = "try-cafe-0", "try-cafe-1", "try-cafe-2", "try-cafe-3", "try-cafe-4", "try-cafe-5"
CAUSES = [
    (Waiting("s", "round_running", 1.0), "round running: 1 row still generating"),
    (Waiting("s", "no_seat", 1.0), "no seat free: all 4 taken"),
    (Waiting("s", "no_blocks", 1.0, needs_blocks=1200), "no block free: needs 1,200, 990 free"),
    (Waiting("s", "no_blocks", 1.0, needs_blocks=4), "needs 4 blocks; the 990 free ones are kept for another lane"),
    (Waiting("s", "no_blocks", 1.0), "no block free: running sequences needed them"),
    (Waiting("s", "no_budget", 1.0), "the token budget of this step is spent"),
    (Waiting("s", "behind", 1.0, behind="cmpl-0123456789ab-2"), "behind 89ab-2"),
    (Waiting("s", "a_cause_of_a_later_version", 1.0), "a_cause_of_a_later_version"),
]


def console(encoding: str = "utf-8", **options: Any) -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), **options)


LETTERS = looks_of(console(force_terminal=True, no_color=True))
COLOURED = looks_of(console(force_terminal=True, color_system="truecolor"))
ASCII = looks_of(console("latin-1", force_terminal=True, color_system="256"))


def watch_of(told: Figures, *log: Step, known: Facts | None = None) -> Watch:
    source = Source(told, list(log))
    source.known = known or source.known
    watch = Watch(source)
    watch.look()
    return watch


def draw(
    watch: Watch, width: int = 100, height: int | None = None, looks: Looks = LETTERS, **options: Any
) -> list[Text]:
    return picture(watch, URL, options.get("policies", ()), width, height, looks)


def words(lines: list[Text]) -> str:
    return "\n".join(line.plain.rstrip() for line in lines)


def a_round() -> tuple[Figures, tuple[Step, ...]]:
    """Six prompts on four seats: two wait, and two of four are held."""
    busy = lane(
        4, num_running=2, num_waiting=2, tokens_per_s=12.5, requests_per_s=0.25, seat_steps=SeatSteps(14, 4, 2),
        ttft_s=quantiles(0.0042, 1.25), itl_s=quantiles(0.05, 0.06), step_s=quantiles(0.05, 120),
    )  # fmt: skip
    line = [Waiting(E, "round_running", 0.4), Waiting(F, "behind", 0.4, behind=E)]
    log = (
        step(0, f"P {A}", f"P {B}", f"P {C}", f"P {D}", waiting=line),
        step(1, f"D {A}", f"D {B}", f"D {C}", f"D {D}", waiting=line),
        step(2, f"D {A}", f"H {B}", f"D {C}", f"H {D}", start_s=9.8, waiting=line),
    )
    return figures({"static": busy}, last_step=2), log


def test_a_static_round_as_drawn_by_hand() -> None:
    told, log = a_round()
    first = place_of(A, 26)
    a, b, c, d = (chr(ord("a") + (first + n) % 26) for n in range(4))
    assert words(draw(watch_of(told, *log), 60)) == (
        "everystep http://127.0.0.1:8000  live\n"
        "smollm2-135m · openvino int8 · 2 threads\n"
        "1,000 blocks of 32 · context 4,096\n"
        "KV cache 1%, 10 of 1,000 blocks · prefix hits 5 tokens\n"
        "preemptions 1\n"
        "\n"
        "static  2 running · 2 waiting · 12.5 tokens/s\n"
        "TTFT p50 4.2 ms p95 1.2 s · ITL p50 50 ms p95 60 ms\n"
        "step p50 50 ms p95 120 s\n"
        "seats 70% working, 20% held, 10% empty\n"
        f"0 {'':55}{a.upper()}{a}{a}\n"
        f"1 {'':55}{b.upper()}{b}░\n"
        f"2 {'':55}{c.upper()}{c}{c}\n"
        f"3 {'':55}{d.upper()}{d}░\n"
        "cafe-4    600 ms  round running: 2 rows still generating\n"
        "cafe-5    600 ms  behind cafe-4\n"
        "A prefill  a decode  ░ held  · empty"
    )


def strips(lines: list[Text], num_seats: int) -> list[Text]:
    first = next(at for at, line in enumerate(lines) if line.plain.startswith("0 "))
    return lines[first : first + num_seats]


def test_with_colours_a_sequence_has_one_wherever_it_is_and_the_states_differ_in_the_character_too() -> None:
    log = (step(0, f"P {A}", f"P {B}"), step(1, f"D {A}", f"H {B}"), step(2, "", f"D {A}"))
    drawn = strips(draw(watch_of(figures(last_step=2), *log), 80, looks=COLOURED), 2)
    assert [line.plain[-3:] for line in drawn] == ["█▄·", "█░▄"]
    mine, other = COLOURS[place_of(A, 14)], COLOURS[place_of(B, 14)]
    assert mine != other
    assert [style_at(drawn[0], at) for at in (-3, -2, -1)] == [mine, mine, "dim"]
    assert [style_at(drawn[1], at) for at in (-3, -2, -1)] == [other, other, mine]


def style_at(line: Text, at: int) -> str:
    place = len(line.plain) + at
    [style] = [str(span.style) for span in line.spans if span.start <= place < span.end]
    return style


def test_neighbours_of_a_request_differ_and_are_stable() -> None:
    places = [place_of(f"try-cafe-{n}", 14) for n in range(14)]
    assert sorted(places) == list(range(14))
    assert place_of("a name of its own", 14) == place_of("a name of its own", 14)
    assert place_of("a-0", 14) == 0xE40C292C % 14, "FNV-1a of 'a', from its authors' test vectors"


def test_a_sequence_has_the_colour_that_it_has_on_the_live_page_in_the_dark() -> None:
    page = Path(__file__).parents[2] / "src" / "everystep" / "api" / "page" / "colours.js"
    source = page.read_text(encoding="utf-8")
    hues = dict(re.findall(r'^const ([A-Z]+) = "#([0-9a-f]{6})";', source, re.MULTILINE))
    table = re.search(r"^const COLOURS = \[(.*?)^\];", source, re.MULTILINE | re.DOTALL)
    assert table is not None
    expected = []
    for hue, lift in re.findall(r"\[([A-Z]+), -?[\d.]+, (-?[\d.]+)\]", table[1]):
        share, mixed_in = abs(float(lift)), 255 if float(lift) > 0 else 0
        channels = [channel * (1 - share) + mixed_in * share for channel in bytes.fromhex(hues[hue])]
        expected.append("#" + "".join(f"{int(channel + 0.5):02x}" for channel in channels))
    assert list(COLOURS) == expected


@pytest.mark.parametrize(("waiting", "told"), CAUSES, ids=lambda value: getattr(value, "why", ""))
def test_why_somebody_waits_is_said_in_words(waiting: Waiting, told: str) -> None:
    log = step(0, f"D {A}", f"H {B}", start_s=9.9, waiting=[waiting])
    assert told in words(draw(watch_of(figures({"static": lane(num_waiting=1)}, last_step=0), log)))


def test_of_a_long_line_the_first_are_told_and_the_rest_counted() -> None:
    line = [Waiting(f"w{n}", "no_seat", 1.0) for n in range(50)]
    watch = watch_of(figures({"static": lane(num_waiting=50)}, last_step=0), step(0, f"D {A}", waiting=line))
    drawn = words(draw(watch))
    assert [f"\nw{n} " in drawn for n in (0, 10, 11)] == [True, True, False]
    assert "\nand 39 more\n" in drawn
    assert "\nand 47 more\n" in words(draw(watch, height=40))


def test_who_left_the_line_since_the_last_step_is_shown_no_more_and_who_came_since_is_counted() -> None:
    line = [Waiting("gone", "no_seat", 1.0)]
    nobody = figures({"static": lane(num_waiting=0)}, last_step=0)
    assert "gone" not in words(draw(watch_of(nobody, step(0, f"D {A}", waiting=line))))
    somebody = figures({"static": lane(num_waiting=3)}, last_step=0)
    assert "waiting for the lane's next step" in words(draw(watch_of(somebody, step(0, f"D {A}"))))


def test_a_large_lane_shows_the_seats_that_are_taken_and_counts_the_others() -> None:
    seats = [f"D {A}", "", f"D {B}", *[""] * 7, f"D {C}"]
    drawn = words(draw(watch_of(figures({"static": lane(64)}, last_step=0), step(0, *seats)), 70))
    assert [line[:2] for line in drawn.splitlines() if line[:2].strip().isdigit()] == [" 0", " 2", "10"]
    assert "… 61 more seats, empty" in drawn


def test_a_lane_without_seats_and_steps_tells_its_state_and_who_runs() -> None:
    told = figures({"vllm": lane(None, num_running=2, num_waiting=1, state="vLLM is starting (37 s)")})
    drawn = words(draw(watch_of(told)))
    assert "vllm  2 running · 1 waiting · vLLM is starting (37 s) · 0.0 tokens/s" in drawn
    assert "\n0 " not in drawn


@pytest.mark.parametrize(
    ("told", "silence", "state"),
    [
        (figures(), "", "live"),
        (figures(is_ready=False, reason="the worker is restarting: killed"), "", "not ready: the worker is restarting"),
        (figures(), "no server at http://h", "away, trying again: no server at http://h"),
        (figures(is_ready=False, reason="x"), "didn't answer within 5 s", "away, trying again: didn't answer"),
    ],
)
def test_the_first_line_says_how_the_server_is(told: Figures, silence: str, state: str) -> None:
    watch = watch_of(told)
    watch.silence = silence
    assert draw(watch)[0].plain.startswith(f"everystep {URL}  {state}")


def test_replaced_workers_and_servers_are_told() -> None:
    source = Source()
    watch = Watch(source)
    for told, expected in [
        (figures(num_worker_restarts=2), ""),
        (figures(num_worker_restarts=3), "the worker was replaced once"),
        (figures(num_worker_restarts=4), "the worker was replaced 2 times"),
        (figures(server_id="two"), "the server began anew"),
    ]:
        source.told = told
        watch.look()
        drawn = words(draw(watch))
        assert expected in drawn
        assert ("replaced" in drawn) == ("replaced" in expected)


def test_an_idle_lane_says_for_how_long() -> None:
    told, log = figures(last_step=0, now_s=312.0), step(0, f"D {A}", start_s=9.95)
    assert "no step for 302 s" in words(draw(watch_of(told, log)))
    assert "nothing in the last 10 s" in words(draw(watch_of(told, log)))


def three_lanes() -> Watch:
    line = [Waiting(f"cmpl-0123456789abcdef-{n}", "no_seat", 1.0) for n in range(9)]
    log = [
        step(n, *[f"{'PDDH'[n % 4]} try-{n // 9:04x}-{seat}" for seat in range(seats)], policy=policy, waiting=line)
        for n, (policy, seats) in enumerate([("static", 4), ("per_token", 4), ("continuous", 50)] * 60)
    ]
    busy = {"num_waiting": 9, "itl_s": quantiles(0.1, 0.2), "seat_steps": SeatSteps(1, 1, 1)}
    lanes = {"static": lane(4, **busy), "per_token": lane(4, **busy), "continuous": lane(64, **busy)}
    return watch_of(figures(lanes, last_step=len(log) - 1, now_s=20.0), *log)


@pytest.mark.parametrize("looks", [LETTERS, COLOURED, ASCII], ids=["letters", "colours", "latin-1"])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 121, 122, 200, 400])
def test_it_fits_every_terminal(width: int, looks: Looks) -> None:
    watch = three_lanes()
    for height in (5, 10, 24, 40, 60, 100):
        lines = draw(watch, width, height, looks)
        assert max(cell_len(line.plain) for line in lines) <= width
        assert len(lines) <= height
        assert "held" in lines[-1].plain or width < 40, "the legend stays"
        for line in lines:
            line.plain.encode(looks.encoding)


def test_in_a_usual_terminal_every_lane_has_strips_and_a_line() -> None:
    drawn = words(draw(three_lanes(), 80, 24))
    assert [drawn.count(part) for part in ("\nstatic", "\nper_token", "\ncontinuous", "\nand 8 more")] == [1, 1, 1, 3]
    assert drawn.count("\n0 ") + drawn.count("\n 0 ") == 3


def test_lanes_stand_beside_each_other_where_there_is_room() -> None:
    watch = three_lanes()
    wide = draw(watch, 200, 40)
    [heads] = [line.plain for line in wide if line.plain.startswith("static")]
    assert heads.index("per_token") < heads.index("continuous")
    assert len([line for line in draw(watch, 100, 40) if "running" in line.plain]) == 3


def test_only_the_lanes_that_are_asked_for_are_shown() -> None:
    drawn = words(draw(three_lanes(), 100, policies=("per_token",)))
    assert ("\nper_token" in drawn, "static" in drawn, "continuous" in drawn) == (True, False, False)


@pytest.mark.parametrize("looks", [LETTERS, COLOURED, ASCII], ids=["letters", "colours", "latin-1"])
def test_somebody_else_s_words_are_neither_markup_nor_commands_to_the_terminal(looks: Looks) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07[bold red]한글\r\n\u202e\x9b31m"
    line = [Waiting(hostile, "behind", 1.0, behind=hostile), Waiting("b", hostile, 1.0)]
    told = figures({hostile: lane(num_waiting=2, state=hostile)}, is_ready=False, reason=hostile, last_step=0)
    log = step(0, f"D {hostile}", policy=hostile, waiting=line)
    watch = watch_of(told, log, known=Facts(hostile, hostile, hostile, 2, 32, 10, 100))
    lines = draw(watch, 200, looks=looks)
    drawn = words(lines)
    assert "[bold red]" in drawn
    assert all(character.isprintable() or character == "\n" for character in drawn)
    output = console(looks.encoding, force_terminal=True, width=200, color_system=None)
    for text in lines:
        output.print(text, highlight=False)
    output.file.flush()
    assert b"\x1b" not in output.file.buffer.getvalue()


def test_what_a_terminal_can_show_is_found_out() -> None:
    assert (COLOURED.has_colours, LETTERS.has_colours, ASCII.has_colours) == (True, False, True)
    assert (COLOURED.prefill, ASCII.prefill, ASCII.held, ASCII.empty) == ("█", "#", ":", ".")
    assert looks_of(console("euc-kr", color_system=None)).plain("모델 ▄ é") == "모델 ? ?"
