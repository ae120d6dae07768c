"""``everystep plan`` from its flags to tables, JSON and refusals, on a calibration made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everystep.analysis.calibration import Calibration, FitFigures, save_calibration
from everystep.analysis.cost import FEATURES
from everystep.cli import run

SETTINGS = {"max_num_seqs": 2, "max_num_batched_tokens": 512, "static_batch_size": 2, "max_queue": 10_000}
LENGTHS = ["--prompt-tokens", "8", "--output-tokens", "10", "--requests", "100", "--draws", "2"]
FIT = FitFigures(num_steps=100, num_outliers=0, r_squared=1.0, residual_s={}, relative_residual={})


@pytest.fixture
def calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step takes 0.1 s, whatever is in it: 10 steps an answer, 2 seats, so 2 requests a second."""
    for name in ("EVERYSTEP_MAX_NUM_SEQS", "EVERYSTEP_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "calibration.json"
    one = Calibration(
        model="made-up",
        runner="fake",
        precision="f32",
        num_threads=1,
        block_size=32,
        num_blocks=1000,
        kv_block_bytes=2**20,
        max_model_len=1024,
        batch=SETTINGS,
        coefficients={name: 0.1 if name == "step" else 0.0 for name in FEATURES},
        fit=FIT,
        submit_s=0.0,
        deliver_s=0.0,
        environment={"cpu": "none"},
    )
    save_calibration(one, path)
    return path


def planned(calibration: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert run(["plan", "--calibration", str(calibration), "--json", *flags]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def refused(calibration: Path, capsys: pytest.CaptureFixture[str], *flags: str, status: int = 2) -> str:
    assert run(["plan", "--calibration", str(calibration), *flags]) == status
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_a_made_up_load_is_planned_and_every_figure_is_in_the_json(
    calibration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*LENGTHS, "--arrivals", "constant", "--rate", "9", "--slo-ttft-p99", "5"]
    plan = planned(calibration, capsys, *flags)
    assert plan["rates"]["highest"] == pytest.approx(2.0, rel=0.06)
    assert plan["replicas"] == 5
    assert plan["binds"] == "seats"
    assert (plan["num_draws"], plan["num_requests"]) == (2, 100)
    assert plan["machine"] == {
        "model": "made-up", "runner": "fake", "precision": "f32", "num_threads": 1, "environment": {"cpu": "none"},
    }  # fmt: skip
    assert plan["load"] == "constant arrivals, prompts 8, answers 10"
    assert [row["label"] for row in plan["policies"]] == ["static", "per_token"]
    assert planned(calibration, capsys, *flags) == plan


def test_a_flag_changes_the_server_and_a_what_if_adds_a_row(
    calibration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*LENGTHS, "--arrivals", "constant", "--rate", "9", "--slo-ttft-p99", "5"]
    plan = planned(calibration, capsys, *flags, "--max-num-seqs", "4", "--what-if", "max-num-seqs=12")
    assert plan["rates"]["highest"] == pytest.approx(4.0, rel=0.06)
    (row,) = (row for row in plan["what_if"] if row["label"] == "max_num_seqs=12")
    assert row["ratio"] == pytest.approx(3.0, rel=0.1)


def test_a_trace_is_planned_at_its_own_rate(
    calibration: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": at_s / 4, "input_length": 16, "output_length": 20} for at_s in range(150)]
    trace.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    plan = planned(calibration, capsys, "--trace", str(trace), "--length-scale", "0.5", "--slo-ttft-p99", "5")
    assert plan["rates"]["offered"] == pytest.approx(4.0)
    assert plan["rates"]["highest"] == pytest.approx(2.0, rel=0.06)
    assert plan["load"] == "trace trace.jsonl, lengths × 0.5"
    assert plan["notes"][0] == "one draw: a trace says nothing of how another hour would differ"


def test_people_get_tables(calibration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*LENGTHS, "--rate", "9", "--slo-ttft-p99", "5", "--slo-tpot-p99", "0.2"]
    assert run(["plan", "--calibration", str(calibration), *flags]) == 0
    out = capsys.readouterr().out
    for words in ("replicas", "what binds", "seats 2 → 4", "KV blocks 1000 → 500", "Little's law", "Round law"):
        assert words in out


def test_an_objective_out_of_reach_is_one_line_and_a_failure(
    calibration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(calibration, capsys, *LENGTHS, "--rate", "9", "--slo-tpot-p99", "0.05", status=1)
    assert line == "everystep: no rate keeps the objective: p99 of TPOT is 0.1 s, 0.05 asked, for a lone request"


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("give --prompt-tokens and --output-tokens, or --trace", ["--rate", "1", "--prompt-tokens", "8"]),
        ("give --rate", LENGTHS),
        ("give an objective", [*LENGTHS, "--rate", "1"]),
        ("--length-scale means nothing with --prompt-tokens", [*LENGTHS, "--rate", "1", "--length-scale", "2"]),
        ("--seed means nothing with --trace", ["--trace", "x.csv", "--seed", "1"]),
        (
            "lengths 'zipf:2'",
            ["--prompt-tokens", "zipf:2", "--output-tokens", "1", "--rate", "1", "--slo-ttft-p99", "1"],
        ),
        ("--what-if 'port=1'", [*LENGTHS, "--rate", "1", "--slo-ttft-p99", "1", "--what-if", "port=1"]),
        ("max_num_seqs", [*LENGTHS, "--rate", "1", "--slo-ttft-p99", "1", "--max-num-seqs", "0"]),
        (
            "the prompt has 5000 tokens; the context holds 1024",
            ["--prompt-tokens", "5000", "--output-tokens", "5", "--rate", "1", "--slo-ttft-p99", "1"],
        ),
        ("headroom=1 must be", [*LENGTHS, "--rate", "1", "--slo-ttft-p99", "1", "--headroom", "1"]),
        ("nan", [*LENGTHS, "--rate", "nan", "--slo-ttft-p99", "1"]),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    words: str, flags: list[str], calibration: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words.replace("-", "_") in refused(calibration, capsys, *flags).replace("-", "_")


def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    assert "schema None isn't 1" in refused(path, capsys, *LENGTHS, "--rate", "1", "--slo-ttft-p99", "1")
