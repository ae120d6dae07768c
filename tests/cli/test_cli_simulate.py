"""``simulate`` as a person meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from everystep.analysis.calibration import Calibration, FitFigures, save_calibration
from everystep.analysis.cost import FEATURES
from everystep.cli import run

A_SECOND_A_STEP = dict.fromkeys(FEATURES, 0.0) | {"step": 1.0}
BATCH = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "static_batch_size": 4, "per_token_batch_size": 4}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("EVERYSTEP_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def calibration(tmp_path: Path) -> str:
    """A machine that takes a second for every step of more than one token, and none for the way to the client."""
    fit = FitFigures(num_steps=500, num_outliers=0, r_squared=0.9876, residual_s={}, relative_residual={})
    one = Calibration(
        model="smollm2-135m", runner="openvino", precision="int8", num_threads=2, block_size=16, num_blocks=64,
        kv_block_bytes=2**20, max_model_len=512, batch=BATCH, coefficients=A_SECOND_A_STEP, fit=fit, submit_s=0.0,
        deliver_s=0.0, environment={"cpu": "one of ours"},
    )  # fmt: skip
    save_calibration(one, tmp_path / "calibration.json")
    return str(tmp_path / "calibration.json")


def simulated(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert run(["simulate", *args, "--json"]) == 0, capsys.readouterr().err
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_six_prompts_on_four_seats_take_two_rounds(calibration: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--calibration", calibration, "--policy", "static,continuous", "-n", "4,6", "--output-tokens", "3")
    result = simulated(capsys, *args)
    walls_s = {(each["policy"], each["n"]): each["wall_s"] for each in result["runs"]}
    assert walls_s == {("static", 4): 3.0, ("continuous", 4): 3.0, ("static", 6): 6.0, ("continuous", 6): 3.0}
    assert result["runs"][2]["seat_steps"] == {"working": 18, "held": 0, "empty": 6}
    assert result["schema"] == 1
    assert result["environment"] == {"cpu": "one of ours"}
    assert result["settings"]["static_batch_size"] == 4
    assert result["settings"]["n"] == [4, 6]


def test_settings_are_what_ifs_and_go_before_variables_before_the_calibrations(
    calibration: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ("--calibration", calibration, "--policy", "static", "-n", "6", "--output-tokens", "3")
    monkeypatch.setenv("EVERYSTEP_STATIC_BATCH_SIZE", "2")
    assert simulated(capsys, *args)["runs"][0]["wall_s"] == 9.0
    result = simulated(capsys, *args, "--static-batch-size", "6")
    assert result["runs"][0]["wall_s"] == 3.0
    assert (result["settings"]["static_batch_size"], result["settings"]["max_num_seqs"]) == (6, 8)


def test_a_smaller_cache_seats_fewer(calibration: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--calibration", calibration, "--policy", "static", "-n", "4", "--prompt-tokens", "30")
    assert simulated(capsys, *args)["runs"][0]["wall_s"] == 20.0
    result = simulated(capsys, *args, "--kv-cache-gib", "0.008")  # 8 blocks of 16: two members of 49 tokens at most
    assert result["settings"]["num_blocks"] == 8
    assert result["runs"][0]["wall_s"] == 40.0


def test_an_open_load_is_the_benchmarks_and_a_saturated_one_is_said_so(
    calibration: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--calibration", calibration, "--policy", "static", "--rate", "0.1,4", "--requests", "60")
    result = simulated(capsys, *args, "--arrivals", "constant", "--output-tokens", "5")
    calm, hasty = result["runs"]
    assert (calm["rate"], calm["is_saturated"], calm["e2e_s"]["p99"]) == (0.1, False, 5.0)
    assert (hasty["rate"], hasty["is_saturated"]) == (4.0, True)
    assert hasty["wall_s"] == 80.0  # 16 rounds of 5 steps: the first has one member, the last three
    assert [note for note in result["notes"] if note.startswith("static, 4/s: saturated")]
    assert not [note for note in result["notes"] if note.startswith("static, 0.1/s")]


def test_an_open_load_may_be_turned_away_at_a_full_line(calibration: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--calibration", calibration, "--policy", "static", "--rate", "4", "--requests", "60", "--max-queue", "10")
    result = simulated(capsys, *args)
    assert result["runs"][0]["num_failed"] > 20
    assert result["runs"][0]["failures"] == {"429": result["runs"][0]["num_failed"]}
    assert any("refused, the first with 429: 10 sequences wait" in note for note in result["notes"])


def test_goodput_counts_who_keeps_the_objective(calibration: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--calibration", calibration, "--policy", "static", "-n", "6", "--output-tokens", "3", "--slo-ttft", "1.5")
    (only,) = simulated(capsys, *args)["runs"]
    assert only["slo_share"] == pytest.approx(4 / 6)
    assert only["goodput_per_s"] == pytest.approx(4 / 6.0)  # four of them in six seconds


def test_a_trace_is_simulated_at_its_own_times_or_scaled_to_a_rate(
    calibration: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"{at_s},30,{2 + at_s % 3}" for at_s in range(0, 100, 10)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    args = ("--calibration", calibration, "--policy", "continuous", "--trace", str(trace))
    (own,) = simulated(capsys, *args)["runs"]
    assert (own["n"], own["rate"], own["wall_s"]) == (10, pytest.approx(0.1), 92.0)  # the last comes at 90 and takes 2
    (slow,) = simulated(capsys, *args, "--time-scale", "2", "--max-requests", "4")["runs"]
    assert (slow["n"], slow["rate"], slow["wall_s"]) == (4, pytest.approx(0.05), 62.0)
    (quick,) = simulated(capsys, *args, "--rate", "1")["runs"]
    assert quick["rate"] == 1.0


def test_tables_and_notes_are_printed_and_the_result_is_written(
    calibration: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    args = ["simulate", "--calibration", calibration, "-n", "6", "--output-tokens", "3", "--out", str(tmp_path / "to")]
    assert run(args) == 0
    out = capsys.readouterr().out
    assert "Simulated: N prompts at once" in out
    assert "18/0/6" in out
    assert "step cost R² 0.988 over 500 steps" in out
    assert out.endswith(f"written: {tmp_path / 'to'}/simulate.json\n")
    assert len(json.loads((tmp_path / "to" / "simulate.json").read_text())["runs"]) == 3


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "give one load: -n, --rate or --trace (given: none)"),
        (["-n", "4", "--rate", "2"], "given: -n, --rate"),
        (["-n", "4", "--arrivals", "constant"], "--arrivals means nothing with -n"),
        (["--rate", "2", "--max-requests", "5"], "--max-requests means nothing with --rate"),
        (["--trace", "t.csv", "--prompt-tokens", "5"], "--prompt-tokens means nothing with --trace"),
        (["--rate", "0"], "0: requests a second must be above 0"),
        (["--rate", "nan"], "nan: requests a second must be above 0"),
        (["--rate", "two"], "'two' isn't a list of numbers"),
        (["-n", "0"], "0 is below 1"),
        (["--rate", "2", "--arrivals", "never"], "arrivals 'never': give poisson"),
        (["-n", "2", "--output-tokens", "few"], "lengths 'few': give 128"),
        (["-n", "2", "--policy", "vllm"], "it schedules for itself"),
        (["-n", "2", "--policy", "lifo"], "'lifo' is none of static, per_token, continuous"),
        (["-n", "2", "--max-num-seqs", "600"], "max_num_batched_tokens=256 is below max_num_seqs=600"),
        (["--trace", "nowhere.csv"], "can't read nowhere.csv"),
    ],
)
def test_wrong_usage_is_one_line(
    calibration: str, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert run(["simulate", "--calibration", calibration, *flags]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_a_calibration_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--calibration", "nowhere.json", "-n", "1"]) == 2
    assert capsys.readouterr().err == "everystep: can't read nowhere.json: No such file or directory\n"
