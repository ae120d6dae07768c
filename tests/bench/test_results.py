"""The result file against the contract, figures computed by hand, and the tables made of it."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from bench.passes_by_hand import ContenderByHand, walls
from everystep.bench.closed import ClosedLoad, Measured, run_closed
from everystep.bench.environment import cpu_facts
from everystep.bench.passes import Pass
from everystep.bench.report import day_line, markdown_page
from everystep.bench.results import client_notes, csv_of, result_of, runs_of
from everystep.bench.tables import ENGLISH, a_day, figure, latency_table, rates_table, seconds_table

# Word for word from the contract, "Benchmark result file".
TOP_KEYS = {"schema", "environment", "settings", "runs"}
RUN_KEYS = {
    "engine", "policy", "n", "rate", "wall_s", "requests_per_s", "output_tokens_per_s", "ttft_s", "tpot_s", "itl_s",
    "e2e_s", "predicted_wall_s", "seat_steps",
}  # fmt: skip
ENVIRONMENT = {
    "date": "2026-11-30T11:00:00+00:00", "cpu": "Some CPU", "cpu_family": "23", "cpu_model": "1", "cpu_flags": ["avx2"],
    "usable_cpus": 2, "memory_gib": 23.5, "python": "3.11.7", "load_average": 0.1, "git_commit": None,
    "everystep": "0.1.0",
}  # fmt: skip


async def made_result() -> dict[str, Any]:
    """Three contenders at N = 2 and 8, two rounds each, 10 tokens a prompt."""
    contenders: list[ContenderByHand] = [
        walls(9.9, 4.0, 8.0, 9.9, 16.0, 16.0, policy="static", engine="hf-generate"),
        walls(9.9, 2.0, 4.0, 9.9, 8.0, 8.0, policy="static"),
        walls(9.9, 1.0, 4.0, 9.9, 2.0, 3.0, policy="continuous"),
    ]
    load = ClosedLoad((2, 8), (2, 2), prompt_tokens=3, max_tokens=10, token_ids=range(100, 200))
    runs = [run async for cells in run_closed(contenders, load, lambda words: None) for run in runs_of(cells, 10)]
    about = [{"label": "continuous", "about": "made by hand", "versions": {"openvino": "2026.4"}}]
    return result_of(
        ENVIRONMENT, {"model": "some/folder/tiny"}, about, ["vllm isn't measured: it isn't there"], [], runs
    )


async def test_the_file_has_the_keys_of_the_contract() -> None:
    result = await made_result()
    assert result.keys() >= TOP_KEYS
    assert result["schema"] == 1
    for run in result["runs"]:
        assert run.keys() >= RUN_KEYS
        assert run["rate"] is None
        assert run["predicted_wall_s"] is None
        assert run["seat_steps"].keys() == {"working", "held", "empty"}
        for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
            assert run[name].keys() == {"p50", "p95", "p99"}


async def test_figures_are_medians_over_rounds_and_ratios_are_paired() -> None:
    runs = {(run["engine"], run["policy"], run["n"]): run for run in (await made_result())["runs"]}
    static, best = runs["everystep", "static", 2], runs["everystep", "continuous", 2]
    assert (static["wall_s"], best["wall_s"]) == (3.0, 2.5)
    assert static["requests_per_s"] == pytest.approx(2 / 3)
    assert static["output_tokens_per_s"] == pytest.approx(20 / 3)
    assert static["spread"] == pytest.approx(2 / 3)
    assert best["ratio_to_static"] == pytest.approx(1.5), "2/1 and 4/4"
    assert best["ratio_to_baseline"] == pytest.approx(3.0), "4/1 and 8/4"
    assert static["ratio_to_static"] == 1.0
    assert static["e2e_s"]["p50"] == pytest.approx(3.0), "2, 2, 4, 4"
    assert static["ttft_s"]["p50"] == pytest.approx(1.5)


async def test_without_a_baseline_there_is_no_ratio_to_it() -> None:
    contender = walls(1.0, 1.0, policy="continuous")
    load = ClosedLoad((1,), (1,), prompt_tokens=3, max_tokens=2, token_ids=range(100, 200))
    ((run,),) = [runs_of(cells, 2) async for cells in run_closed([contender], load, lambda words: None)]
    assert run["ratio_to_static"] is None
    assert run["ratio_to_baseline"] is None


async def test_csv_has_a_line_a_run_and_latencies_flat() -> None:
    result = await made_result()
    lines = list(csv.DictReader(io.StringIO(csv_of(result["runs"]))))
    assert len(lines) == 6
    assert float(lines[1]["e2e_p50_s"]) == pytest.approx(3.0)
    assert lines[1]["walls_s"] == "2.0000 4.0000"


async def test_the_tables_hold_seconds_rates_ratios_and_a_day() -> None:
    result = await made_result()
    seconds, rates = seconds_table(result, ENGLISH), rates_table(result, ENGLISH)
    assert seconds.head[:3] == ("contender", "N = 2", "N = 8")
    assert seconds.rows[2] == ("continuous", "2.50", "2.50", "1.50×", "3.33×", "3.00×", "6.67×")
    assert rates.rows[2] == ("continuous", "0.800", "3.20", "276,000"), "3.2 a second for 86,400 seconds"
    assert "continuous 276,000" in day_line(result)
    assert latency_table(result).rows[0][7] == "–/–/–"


async def test_one_round_has_no_spread() -> None:
    result = await made_result()
    rows = [run for run in result["runs"] if (run["policy"], run["n"]) == ("continuous", 2)]
    assert [row[8] for row in latency_table(result | {"runs": rows}).rows] == ["120%"], "(4 - 1) / 2.5"
    rows[0]["walls_s"], rows[0]["spread"] = [4.0], 0.0
    assert [row[8] for row in latency_table(result | {"runs": rows}).rows] == ["–"]


async def test_the_page_names_machine_absent_peers_and_releases() -> None:
    page = markdown_page(await made_result())
    for words in (
        "2 cores of Some CPU (family 23, model 1)",
        "vllm isn't measured",
        "openvino 2026.4",
        "| continuous |",
    ):
        assert words in page


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234.5, "1234"), (100.0, "100"), (12.34, "12.3"), (1.5, "1.50"), (0.123, "0.123"), (0.01234, "0.0123"),
     (0.0012345, "0.00123"), (0.00000123, "0.000001")],
)  # fmt: skip
def test_a_figure_shows_three_digits_that_count(value: float, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(("rate", "shown"), [(780.49, "67,400,000"), (0.66, "57,000"), (0.0001, "9")])
def test_requests_a_day_are_rounded_to_what_counts(rate: float, shown: str) -> None:
    assert a_day(rate) == shown


@pytest.mark.parametrize(("cpu_s", "num_notes"), [(0.19, 0), (0.5, 1)])
def test_a_busy_client_is_named_in_the_report(cpu_s: float, num_notes: int) -> None:
    cell = Measured(ContenderByHand("static", []), 4, [Pass(1.0, 4, ((1.0,),) * 4, cpu_s)])
    notes = client_notes(runs_of([cell], 1))
    assert len(notes) == num_notes
    assert all("50% of a core at static, N = 4" in note for note in notes)


def test_the_cpu_is_the_first_one_and_its_telling_flags() -> None:
    text = "model name\t: Alpha\ncpu family\t: 25\nflags\t\t: fpu avx2 avx512f mmx\n\nmodel name\t: Beta\n"
    facts = cpu_facts(text)
    assert (facts["cpu"], facts["cpu_family"], facts["cpu_flags"]) == ("Alpha", "25", ["avx2", "avx512f"])
