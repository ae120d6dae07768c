"""``everystep bench`` from end to end: a server of its own with the fake runner, files, interruption, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.served import serving

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tests" / "golden" / "tiny" / "llama"
DEADLINE_S = 100.0
FIXED = ["--model", str(TINY), "--runner", "fake", "--kv-cache-gib", "0.001"]

KEY = "a-key-that-is-nobody-s-business"


def environment(tmp_path: Path) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("EVERYSTEP_")}
    return outside | {"PYTHONPATH": str(ROOT / "src"), "EVERYSTEP_CACHE_DIR": str(tmp_path / "cache")}


def command(tmp_path: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "everystep", "bench", *FIXED, "--out", str(tmp_path / "results"), *flags]


def bench(tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tmp_path, *flags), capture_output=True, text=True, env=environment(tmp_path), timeout=DEADLINE_S
    )


def test_it_measures_every_lane_leaves_out_who_is_absent_and_writes_the_files(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "python")
    peers = ["--engine", "hf-generate", "--torch-python", nowhere, "--engine", "openvino-genai"]
    done = bench(
        tmp_path, "-n", "1,6", "--repeats", "1", "--max-tokens", "3", "--policies", "static,continuous,vllm", "--json",
        *peers, "--genai-python", nowhere,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "results" / "bench.json").read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == result
    assert [(run["policy"], run["n"]) for run in result["runs"]] == [
        ("static", 1), ("continuous", 1), ("static", 6), ("continuous", 6),
    ]  # fmt: skip
    assert {line.split(" isn't")[0] for line in result["absent"]} == {"hf-generate", "openvino-genai", "policy vllm"}
    assert all(line in done.stderr.splitlines() for line in result["absent"])
    _check_seats(result)
    assert (tmp_path / "results" / "bench.csv").read_text(encoding="utf-8").count("\n") == 5
    assert "vllm isn't measured" in (tmp_path / "results" / "bench.md").read_text(encoding="utf-8")


def _check_seats(result: dict[str, Any]) -> None:
    """Six prompts of three tokens: a round of 4 and one of 2, three steps each, on four seats."""
    seats = {(run["policy"], run["n"]): run["seat_steps"] for run in result["runs"]}
    assert seats["static", 6] == {"working": 18, "held": 0, "empty": 6}
    assert seats["continuous", 6] == {"working": 18, "held": 0, "empty": 3 * (64 - 6)}


def test_a_server_that_runs_already_is_measured_with_its_key_and_left_alone(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-key", KEY) as server:
        url = ["--url", server.url, "-n", "2", "--repeats", "1", "--max-tokens", "2", "--policies", "per_token,vllm"]
        done = bench(tmp_path, *url, "--api-key", KEY, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert [run["policy"] for run in result["runs"]] == ["per_token"]
        assert result["absent"] == [f"policy vllm isn't measured: the server at {server.url} has no such lane"]
        assert KEY not in json.dumps(result["settings"]), "a key is nobody's business"
        refused = bench(tmp_path, *url)
        assert refused.returncode == 1
        assert "answers 401" in refused.stderr
        assert server.process.poll() is None


def test_an_open_load_alternates_our_own_server_and_one_asked_as_anybodys(tmp_path: Path) -> None:
    """Nineteen requests: too few to call a rate too much for a machine that has other things to do."""
    with serving(tmp_path) as server:
        both = ["--url", f"there={server.url}", "--api", "openai", "--engine", "everystep", "--policies", "static"]
        load = ["--rate", "40,80", "--requests", "19", "--prompt-tokens", "uniform:2,9", "--max-tokens", "3"]
        done = bench(tmp_path, *both, *load, "--slo-ttft", "60", "--steps", "--no-figures", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {(run["engine"], run["policy"], run["rate"], run["n"]) for run in result["runs"]} == {
        (engine, policy, rate, 19)
        for engine, policy in (("there", "own"), ("everystep", "static"))
        for rate in (40, 80)
    }
    assert [run["engine"] for run in result["runs"]] == ["there", "everystep", "everystep", "there"]
    for run in result["runs"]:
        assert (run["num_failed"], run["slo_share"]) == (0, 1.0)
        assert run["ttft_s"]["p50"] > 0
    assert all(run["seat_steps"]["working"] == 3 * 19 for run in result["runs"] if run["policy"] == "static")
    _check_open_files(tmp_path / "results")


def _check_open_files(results: Path) -> None:
    samples = [json.loads(line) for line in (results / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(samples) == 4 * 19
    log = json.loads((results / "steps-static-80.json").read_text(encoding="utf-8"))
    assert sum(row["phase"] != "held" for step in log["static"] for row in step["rows"]) == 3 * 19, "no warm-up in it"


def test_a_closed_load_through_the_native_stream(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        how = ["--url", server.url, "--api", "native", "--policies", "per_token", "--no-figures", "--json"]
        done = bench(tmp_path, *how, "-n", "1,5", "--repeats", "1", "--max-tokens", "3")
    assert done.returncode == 0, done.stderr
    assert [(run["n"], run["seat_steps"]["working"]) for run in json.loads(done.stdout)["runs"]] == [(1, 3), (5, 15)]


def test_a_server_that_isnt_there_is_one_line(tmp_path: Path) -> None:
    done = bench(tmp_path, "--url", "http://127.0.0.1:9", "-n", "1")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["everystep: http://127.0.0.1:9 can't be asked: All connection attempts failed"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_benchmark_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command(tmp_path, "--repeats", "100000", "-n", "4"),
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        # Whoever is started in the background of a shell without job control ignores SIGINT, and so would our child.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    said = [next(process.stderr) for _ in range(2)]
    assert said[-1] == "measuring static 4, per_token 4, continuous\n"
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2, "the server and its worker"
    process.send_signal(number)
    assert process.stderr.read() == "everystep: interrupted\n"
    assert process.wait(DEADLINE_S) == 1
    _, alive = psutil.wait_procs(children, DEADLINE_S)
    assert alive == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--repeats", "1,2"], "--repeats has 2 numbers, -n has 4"),
        (["-n", "0,1"], "0 is below 1"),
        (["-n", "many"], "isn't a list of whole numbers"),
        (["--rate", "2", "-n", "4"], "-n is of closed loads, and --rate and --dataset are of open ones"),
        (["--rate", "-2"], "--rate -2: requests a second must be above 0"),
        (["--dataset", "no-such.jsonl"], "can't read no-such.jsonl"),
        (["--url", "localhost:8000"], "give [NAME=]http://HOST:PORT"),
        (["--policies", "none"], "nobody to measure: give --policies, --engine or --url"),
        (["--out", "/dev/null/x"], "--out /dev/null/x: can't be written to: Not a directory"),
        (["--policies", "fifo"], "'fifo' is none of static, per_token, continuous, vllm"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(tmp_path: Path, flags: list[str], words: str) -> None:
    done = bench(tmp_path, *flags)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line
