"""Everything a benchmark has found out, and its files.

Owns which files there are.  Ignorant of how anything was measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from everystep.analysis.load import Load
from everystep.bench.report import markdown_page
from everystep.bench.results import Result, Run, csv_of

Sample = dict[str, Any]


class Predict(Protocol):
    """What a load should take; ``None`` where it can't be told of that engine and policy."""

    def __call__(self, engine: str, policy: str, load: Load) -> float | None:
        """Wall seconds, simulated."""

    def round_law_s(self, engine: str, policy: str, load: Load) -> float | None:
        """Wall seconds by the law of static rounds, for equal prompts at once."""


@dataclass
class Findings:
    """What is gathered while contenders take turns."""

    runs: list[Run] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)  # one a request
    step_logs: dict[str, dict[str, Any]] = field(default_factory=dict)  # file → {policy: steps of one pass}
    notes: list[str] = field(default_factory=list)

    def keep_steps(self, engine: str, policy: str, load: str, steps: tuple[dict[str, Any], ...] | None) -> None:
        """One pass's step log, where it was asked for.  ``load`` is N or the rate, in words."""
        if steps is not None:
            lane = policy if engine == "everystep" else f"{engine}-{policy}"
            self.step_logs[f"steps-{lane}-{load}.json"] = {policy: steps}


def write_files(result: Result, findings: Findings, out: Path) -> None:
    """``bench.json``, ``.csv``, ``.md``, ``samples.jsonl`` and the step logs, into ``out``."""
    _write(out / "bench.json", json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    _write(out / "bench.csv", csv_of(result["runs"]))
    _write(out / "bench.md", markdown_page(result))
    _write(out / "samples.jsonl", "".join(f"{json.dumps(sample, ensure_ascii=False)}\n" for sample in findings.samples))
    for name, log in findings.step_logs.items():
        _write(out / name, json.dumps(log) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
