"""The examples run as they stand, and show what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cli.served import serving

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TINY = ROOT / "tests" / "golden" / "tiny" / "llama"
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src")}


def run(name: str, *args: str, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *args]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"offline_generate.py", "openai_client.py", "own_policy.py"}


def test_shortest_first_holds_no_seats_where_static_does(tmp_path: Path) -> None:
    """By hand: rounds of 5, 60, 5, 60 twice are 120 steps in which two seats are held for 55 each; rounds of
    5, 5, 5, 5 and 60, 60, 60, 60 are 65 and hold none.  Refilled at once, the last long one starts after 15: 75."""
    rows = {line.split()[0]: line.split()[1:] for line in run("own_policy.py", cwd=tmp_path).splitlines()[1:]}
    assert rows["static"] == ["120", "260", "220", "0"]
    assert rows["shortest_first"] == ["65", "260", "0", "0"]
    assert rows["per_token"] == rows["continuous"] == ["75", "260", "0", "40"]


def test_the_comparison_in_contributing_is_what_the_example_prints(tmp_path: Path) -> None:
    assert run("own_policy.py", cwd=tmp_path) in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_offline_generation_answers_each_prompt(tmp_path: Path) -> None:
    lines = run("offline_generate.py", str(TINY), cwd=tmp_path).splitlines()
    assert [line.split(" → ")[0] for line in lines if " → " in line] == [
        "'The capital of France is'",
        "'1, 2, 3, 4,'",
        "'Once upon a time'",
    ]


def test_the_openai_client_streams_what_the_server_says_whole(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        shown = run("openai_client.py", server.url, cwd=tmp_path)
        body = {"model": str(TINY), "messages": [{"role": "user", "content": "Name three colours."}]}
        body |= {"max_tokens": 24, "temperature": 0}
        reply = server.client.post("/v1/chat/completions", json=body).json()
    assert shown == reply["choices"][0]["message"]["content"] + "\n"
