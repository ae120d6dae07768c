"""Steps for tests of the step-cost model: made up with a known price list, and recorded on a real machine."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everystep.analysis.cost import FEATURES, CostModel
from everystep.analysis.step_work import StepWork, TimedStep

RECORDED = Path(__file__).parent / "recorded" / "calibration_steps.json"
PHASES = {"p": "prefill", "d": "decode", "h": "held"}
PRICES = dict.fromkeys(FEATURES, 0.0) | {
    "step": 0.018,
    "wide": 0.004,
    "new_width": 0.010,
    "tokens_2_to_4": 0.005,
    "tokens_5_to_16": 0.0045,
    "tokens_17_to_64": 0.003,
    "tokens_65_to_256": 0.004,
    "tokens_over_256": 0.0035,
    "sampled": 0.0008,
    "stream": 0.0004,
    "context": 5e-6,
    "attention": 1e-6,
}


def made_work(rng: random.Random) -> StepWork:
    """A step of some decoding rows, and in every other case a prompt that is read beside them."""
    num_decoding = rng.choice([0, 1, 2, 3, 4, 8, 16, 40, 64])
    context = sum(rng.randint(5, 900) for _ in range(num_decoding))
    new, products, num_sampled = num_decoding, context, num_decoding
    if num_decoding == 0 or rng.random() < 0.5:
        prompt = rng.choice([3, 10, 30, 90, 200, 420])
        new, context = new + prompt, context + prompt
        products += prompt * (prompt + 1) // 2
        num_sampled += rng.random() < 0.7
    num_streams = rng.randint(min(1, num_sampled), num_sampled)
    is_new_width = new > 1 and rng.random() < 0.5
    return StepWork(num_decoding + 1, new, num_sampled, num_streams, context, products, is_new_width)


def made_steps(num: int, rng: random.Random, noise: float = 0.0, stalled: float = 0.0) -> list[TimedStep]:
    """Steps that cost :data:`PRICES`, give or take ``noise`` (a share), of which a share was ``stalled``."""
    cost = CostModel(PRICES)
    steps = []
    for _ in range(num):
        work = made_work(rng)
        factor = rng.uniform(3.0, 8.0) if rng.random() < stalled else rng.gauss(1.0, noise)
        steps.append(TimedStep(work, cost.work_s(work) * factor))
    return steps


def recorded_loads() -> list[list[Mapping[str, Any]]]:
    """The step logs of a calibration's loads as ``/steps`` gave them, without what a fit doesn't look at."""
    loads = json.loads(RECORDED.read_text(encoding="utf-8"))["loads"]
    return [[_step(*step) for step in load] for load in loads]


def _step(number: int, start_s: float, end_s: float, num_waiting: int, rows: list[list[Any]]) -> dict[str, Any]:
    return {
        "step": number,
        "start_s": start_s,
        "end_s": end_s,
        "waiting": [{}] * num_waiting,
        "rows": [
            {
                "sequence_id": sequence,
                "request_id": request,
                "phase": PHASES[phase],
                "new_tokens": new,
                "context_tokens": context,
                "finish": "length" if finished else None,
            }
            for sequence, request, phase, new, context, finished in rows
        ],
    }
