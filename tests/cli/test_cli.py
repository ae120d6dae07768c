"""The command line as a person meets it: help, exit status, one line per error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everystep.cli import run
from everystep.errors import ModelError
from everystep.version import __version__

TINY = Path(__file__).parents[1] / "golden" / "tiny" / "llama"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
FAKE = ["--model", str(TINY), "--runner", "fake"]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("EVERYSTEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EVERYSTEP_CACHE_DIR", str(tmp_path / "cache"))


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"everystep {__version__}\n"


@pytest.mark.parametrize("command", [[], ["serve"], ["generate"], ["pull"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: everystep")


def test_help_shows_defaults_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    run(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--max-num-seqs N seats of the continuous lane [default: 64]" in shown
    assert "--default-policy [static|per_token|continuous|vllm]" in shown
    assert "--prefix-cache / --no-prefix-cache" in shown


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["serve", "--prot", "1"], 2, "everystep serve: No such option '--prot'"),
        (["serve", "--port", "x"], 2, "everystep serve: Invalid value for '--port'"),
        (["serve", "--port", "99999"], 2, "everystep: --port: 99999: input should be less than"),
        (["serve", "--config", "/nowhere.toml"], 2, "everystep: can't read /nowhere.toml"),
        (["serve", "--port", "0", "--model", "nowhere.gguf"], 1, "no model 'nowhere.gguf'"),
        (["frobnicate"], 2, "No such command 'frobnicate'"),
        (["generate"], 2, "Missing argument 'PROMPT...'"),
        (["generate", "hi", "--temperature", "-1"], 2, "temperature=-1.0 must be a number from 0 to 100"),
        (["generate", "hi", "--policy", "best"], 2, "'best' is not one of 'static', 'per_token', 'continuous'"),
        (["generate", "hi", "--port", "1"], 2, "No such option '--port'"),
        (["generate", "hi", "--model", "nowhere.gguf"], 1, "no model 'nowhere.gguf'"),
    ],
)
def test_what_goes_wrong_is_one_line_on_stderr_and_a_status(
    args: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == status
    shown = capsys.readouterr()
    assert words in shown.err.splitlines()[-1]
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_traceback_is_shown_only_at_log_level_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "hi", "--model", "nowhere.gguf", "--log-level", "debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_fault_of_our_own_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("everystep.checkpoint.pull", lambda *_: 1 / 0)
    assert run(["pull"]) == 1
    assert capsys.readouterr().err == "everystep: ZeroDivisionError: division by zero (--log-level debug shows where)\n"


def test_an_interrupt_is_one_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("everystep.checkpoint.pull", interrupt)
    assert run(["pull"]) == 1
    assert capsys.readouterr().err == "everystep: interrupted\n"


def test_pull_tells_each_stage_and_prints_the_path_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fake_pull(name: str, cache_dir: Path, progress: object) -> Path:
        progress.stage(f"downloading {name}", None)  # type: ignore[attr-defined]
        progress.stage("unpacking", 10)  # type: ignore[attr-defined]
        progress.advance(10)  # type: ignore[attr-defined]
        return cache_dir / name

    monkeypatch.setattr("everystep.checkpoint.pull", fake_pull)
    assert run(["pull", "owner/name"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'cache' / 'owner/name'}\n"
    assert shown.err == "downloading owner/name\nunpacking\n"


def test_pull_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> None:
        raise ModelError("the file has\nanother digest")

    monkeypatch.setattr("everystep.checkpoint.pull", broken)
    assert run(["pull"]) == 1
    assert capsys.readouterr().err == "everystep: the file has another digest\n"


def test_generate_prints_the_text_of_one_prompt_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "a b", "--json", "--max-tokens", "5", "--ignore-eos", *FAKE]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert run(["generate", "a b", "--max-tokens", "5", "--ignore-eos", *FAKE]) == 0
    assert capsys.readouterr().out == as_json["text"] + "\n"
    assert (len(as_json["token_ids"]), as_json["finish_reason"], as_json["prompt"]) == (5, "length", "a b")


@pytest.mark.parametrize("policy", ["static", "per_token", "continuous"])
def test_generate_answers_in_the_order_of_the_prompts_under_every_policy(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = ["a", "b c", "d e f", "g", "h", "i"]
    alone = []
    for prompt in prompts:
        run(["generate", prompt, "--json", "--max-tokens", "4", *FAKE])
        alone.append(json.loads(capsys.readouterr().out))
    assert run(["generate", *prompts, "--json", "--max-tokens", "4", "--policy", policy, *FAKE]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == alone


def test_importing_the_package_and_asking_for_help_loads_nothing_heavy() -> None:
    script = (
        "import sys, everystep, everystep.cli\n"
        "try: everystep.cli.run(['--help'])\n"
        "finally: print(sorted({'numpy', 'openvino', 'fastapi', 'uvicorn', 'tokenizers', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stdout.splitlines()[-1] == "[]"
