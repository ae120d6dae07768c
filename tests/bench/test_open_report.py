"""What is kept of an open load: the contract's keys, figures by hand, tables, notes and samples."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from bench.passes_by_hand import ContenderByHand
from bench.test_results import ENVIRONMENT, RUN_KEYS
from everystep.analysis.load import Arrival
from everystep.analysis.outcome import Answer, Outcome, Slo
from everystep.bench.open_findings import client_notes, failure_notes, open_findings, prompt_notes, run_of, samples_of
from everystep.bench.open_loop import OpenCell
from everystep.bench.open_order import OpenOrder
from everystep.bench.peers.roster import Roster
from everystep.bench.report import all_tables, day_line, markdown_page
from everystep.bench.results import csv_of, result_of
from everystep.bench.saturation import judge
from everystep.bench.served import Client, Served
from everystep.bench.terminal import Bar

ORDER = OpenOrder(rates=(2.0,), num_requests=4, slo=Slo(ttft_s=1.5))


def cell(lags_s: tuple[float, ...] = (0.0, 0.001, 0.002, 0.003), cpu_s: float = 0.5) -> OpenCell:
    """At 0, 0.5, 1 and 1.5 s: begun after 1 s, after 2 s, turned away, begun after 1 s; two tokens, 0.5 s apart."""
    load = [Arrival(0.5 * number, 10, 2) for number in range(4)]
    first_s = (1.0, 2.5, None, 2.5)
    answers = tuple(
        Answer(arrival, (), 0, "429: the line is full") if at_s is None else Answer(arrival, (at_s, at_s + 0.5), 2)
        for arrival, at_s in zip(load, first_s, strict=True)
    )
    served = Served(Outcome(answers, 3.0, {"working": 6, "held": 0, "empty": 2}), Client(cpu_s, lags_s), 36)
    return OpenCell(ContenderByHand("static", []), 2.0, load, served, judge(answers))


def result(*cells: OpenCell) -> dict[str, Any]:
    settings = {"model": "tiny", "kind": "open", **ORDER.as_settings()}
    return result_of(ENVIRONMENT, settings, [], [], [], [run_of(one, ORDER) for one in cells])


def test_a_run_has_the_contracts_keys_and_figures_by_hand() -> None:
    run = run_of(cell(), ORDER)
    assert run.keys() >= RUN_KEYS
    assert (run["n"], run["rate"], run["wall_s"], run["offered_per_s"]) == (4, 2.0, 3.0, 2.0)
    assert run["requests_per_s"] == pytest.approx(3 / 3.0)
    assert run["output_tokens_per_s"] == pytest.approx(6 / 3.0)
    assert run["ttft_s"]["p50"] == pytest.approx(1.0), "1, 2, 1"
    assert run["tpot_s"]["p99"] == pytest.approx(0.5)
    assert run["e2e_s"]["p50"] == pytest.approx(1.5)
    assert (run["failures"], run["num_failed"]) == ({"429": 1}, 1)
    assert run["slo_share"] == pytest.approx(2 / 4), "one was late, one was turned away"
    assert run["goodput_per_s"] == pytest.approx(2 / 3.0)
    assert run["seat_steps"] == {"working": 6, "held": 0, "empty": 2}
    assert run["client_cores"] == pytest.approx(0.5 / 3.0)
    assert run["lag_s"]["max"] == 0.003
    assert run["prompt_tokens_per_request"] == pytest.approx(12.0)
    assert run["is_saturated"] is None, "four requests tell nothing"


def test_csv_has_the_open_columns() -> None:
    (line,) = csv.DictReader(io.StringIO(csv_of([run_of(cell(), ORDER)])))
    assert (line["rate"], line["failures"], line["lag_max_s"], line["ttft_p50_s"]) == ("2.0", "429:1", "0.003", "1.0")


def test_tables_have_a_row_per_contender_and_rate_and_a_day() -> None:
    rates, latencies = all_tables(result(cell()))
    assert rates.rows == (
        ("static", "2", "2.00", "4", "1.00", "2.00", "0.667", "50%", "1 × 429", "6/0/2", "too few to tell"),
    )
    assert rates.title == "Open load: poisson, fixed, 128 prompt and 20 output tokens, TTFT ≤ 1.5 s"
    assert latencies.rows[0][:4] == ("static", "2", "1.00", "1.90")
    assert day_line(result(cell())).endswith("static 86,400 (at 2/s)")
    assert "1 × 429" in markdown_page(result(cell()))


def test_where_nothing_is_sent_there_is_no_lag() -> None:
    run = run_of(cell(lags_s=()), ORDER)
    assert run["lag_s"] is None
    assert client_notes(run) == []
    assert "lag_max_s" in csv_of([run])


@pytest.mark.parametrize(
    ("lags_s", "cpu_s", "words"),
    [
        ((0.0, 0.0, 0.0, 0.049), 0.5, []),
        ((0.0, 0.0, 0.0, 0.2), 0.5, ["the client was the limit at static, 2/s: it sent up to 200 ms late"]),
        ((0.0,) * 4, 0.9, ["the client itself took 30% of a core at static, 2/s"]),
    ],
)
def test_a_client_that_was_the_limit_says_so(lags_s: tuple[float, ...], cpu_s: float, words: list[str]) -> None:
    notes = client_notes(run_of(cell(lags_s, cpu_s), ORDER))
    assert [note.startswith(start) for note, start in zip(notes, words, strict=True)] == [True] * len(words)


def test_failures_are_noted_in_the_servers_words_and_prompts_of_another_length_are_too() -> None:
    assert failure_notes(cell()) == ["static, 2/s: 1 of 4 failed with 429: the line is full"]
    assert prompt_notes(cell()) == ["static, 2/s: prompts had 12.0 tokens on average, not 10.0"]


def test_samples_are_a_line_a_request_failed_ones_included() -> None:
    samples = samples_of(cell())
    assert [sample["ttft_s"] for sample in samples] == [1.0, 2.0, None, 1.0]
    assert samples[2]["error"] == "429: the line is full"
    assert samples[3]["lag_s"] == 0.003


async def test_findings_hold_runs_predictions_samples_and_who_was_saturated() -> None:
    slow = ContenderByHand("static", [])
    slow.takes_s = lambda at_s: at_s
    order = OpenOrder(rates=(1.0, 2.0), num_requests=30, prompt_tokens="3", output_tokens="2")
    asked: list[tuple[str, str, int]] = []

    def predict(engine: str, policy: str, load: Any) -> float:
        asked.append((engine, policy, len(load)))
        return 7.5

    with Bar() as bar:
        findings = await open_findings(order, Roster(contenders=[slow]), bar, predict)
    (run,) = findings.runs
    assert (run["rate"], run["is_saturated"], run["predicted_wall_s"]) == (1.0, True, 7.5)
    assert asked == [("everystep", "static", 30)]
    assert len(findings.samples) == 30
    assert findings.notes[-1] == "static is saturated at 1/s: higher rates are skipped (--past-saturation)"
