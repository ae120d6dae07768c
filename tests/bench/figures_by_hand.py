"""A result file and a step log whose every figure is written down by hand."""

from __future__ import annotations

from typing import Any

ENVIRONMENT = {
    "date": "2026-11-30T11:00:00+00:00", "cpu": "Some CPU", "cpu_family": "23", "cpu_model": "1", "cpu_flags": ["avx2"],
    "usable_cpus": 2, "memory_gib": 23.5, "python": "3.11.7", "load_average": 0.1, "git_commit": None,
    "everystep": "0.1.0",
}  # fmt: skip


def run(policy: str, n: int, wall_s: float, *, rate: float | None = None, **more: Any) -> dict[str, Any]:
    """Ten tokens a prompt; TTFT half of the wall time, its p99 all of it."""
    shares = {"p50": wall_s / 2, "p95": wall_s * 0.9, "p99": wall_s}
    return {
        "engine": "everystep",
        "policy": policy,
        "label": f"{policy} lane",
        "n": n,
        "rate": rate,
        "wall_s": wall_s,
        "requests_per_s": n / wall_s,
        "output_tokens_per_s": 10 * n / wall_s,
        **{name: dict(shares) for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")},
        "predicted_wall_s": None,
        "seat_steps": {"working": 1, "held": 0, "empty": 0},
        **more,
    }


def result(*runs: dict[str, Any]) -> dict[str, Any]:
    settings = {"model": "some/folder/tiny", "prompt_tokens": 6, "max_tokens": 10, "server": {}}
    return {"schema": 1, "environment": ENVIRONMENT, "settings": settings, "runs": list(runs)}


def step(
    number: int, start_s: float, end_s: float, rows: str, waiting: int = 0, policy: str = "static"
) -> dict[str, Any]:
    """``rows`` as ``"0ap 1bd 2ch"``: seat, prompt, and prefill, decode or held."""
    phases = {"p": "prefill", "d": "decode", "h": "held"}
    shown = [
        {
            "seat": int(seat),
            "sequence_id": name,
            "request_id": f"of-{name}",
            "phase": phases[phase],
            "new_tokens": 1,
            "context_tokens": 1,
            "finish": None,
        }
        for seat, name, phase in map(tuple, rows.split())
    ]
    line = [{"sequence_id": f"w{place}"} for place in range(waiting)]
    return {"step": number, "policy": policy, "start_s": start_s, "end_s": end_s, "rows": shown, "waiting": line}


# Two seats, three prompts: a ends after two steps and holds its seat for one; then c runs alone.
STATIC = [
    step(0, 10.0, 11.0, "0ap 1bp", waiting=1),
    step(1, 11.0, 11.5, "0ad 1bd", waiting=1),
    step(2, 11.5, 12.0, "0ah 1bd", waiting=1),
    step(3, 12.0, 13.0, "0cp"),
    step(4, 13.0, 13.5, "0cd"),
]
