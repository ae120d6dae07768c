"""Seconds per step from what the step computes: a sum that one can read.

Owns the features, the fit (non-negative least squares of relative errors) and its diagnostics.  Ignorant of where steps
were measured.  Fitting needs scipy; predicting needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everystep.analysis.percentiles import percentile
from everystep.analysis.step_work import StepWork, TimedStep, Widths, work_of
from everystep.errors import EverystepError
from everystep.types import Row, StepPlan

# A token more costs another price in a narrow step than in a wide one, since kernels change with the width: a matrix
# times a vector reads the weights for each token, a matrix times a matrix for all.  So there are bands, as with taxes.
BAND_EDGES = (1, 4, 16, 64, 256)  # new tokens of the step
BANDS = tuple(zip(BAND_EDGES, (*BAND_EDGES[1:], None), strict=True))
FEATURES: dict[str, str] = {
    "step": "a step with one new token",
    "wide": "a step with more than one: the graph of fixed shapes serves a lone token",
    "new_width": "a step with another number of tokens than the last wide one: the graph prepares itself anew",
    **{
        f"tokens_{low + 1}_to_{high}" if high else f"tokens_over_{low}": "a new token within this band of the step's"
        for low, high in BANDS
    },
    "sampled": "a row that draws a token",
    "stream": "a request that gets a token: who writes and reads its stream takes part of the cores",
    "context": "a token of context read",
    "attention": "a pair of a new token and one that it looks at",
}
MIN_STEPS = 30
OUTLIER_FACTOR = 1.5  # a step that took over so many times what the others make likely, or under: it was stalled
MAX_OUTLIER_SHARE = 0.1
FIT_ROUNDS = 6
QUANTILES = {"p1": 0.01, "p5": 0.05, "p50": 0.50, "p95": 0.95, "p99": 0.99}

Floats = npt.NDArray[np.float64]


class CalibrationFailed(EverystepError):
    """The steps don't determine a cost: too few of them, or too much alike."""


def features(work: StepWork) -> tuple[float, ...]:
    """Counts by feature, in the order of :data:`FEATURES`."""
    tokens = work.num_new_tokens
    bands = [max(0, min(tokens, high or tokens) - low) for low, high in BANDS]
    return (
        1.0,
        float(tokens > 1),
        float(work.is_new_width),
        *bands,
        work.num_sampled,
        work.num_streams,
        work.context_tokens,
        work.attention_products,
    )


def _begins_a_load(row: Row) -> bool:
    """Whether this is the load's first arrival in its first step, where it sits before everybody."""
    return row.start == 0 and row.sequence.arrival_index == 0 and row.sequence.num_preemptions == 0


@dataclass(frozen=True)
class CostModel:
    """Seconds by feature; all are at least zero."""

    seconds: Mapping[str, float]

    def __post_init__(self) -> None:
        if set(self.seconds) != set(FEATURES):
            odd = sorted(set(self.seconds) ^ set(FEATURES))
            raise CalibrationFailed(f"coefficients {', '.join(odd)} are unknown or lacking; features are {[*FEATURES]}")
        for name, value in self.seconds.items():
            if not 0 <= value < float("inf"):
                raise CalibrationFailed(f"coefficient {name}={value} must be a number of seconds from 0 on")
        object.__setattr__(self, "_ordered", tuple(self.seconds[name] for name in FEATURES))

    def step_s(self, plan: StepPlan) -> float:
        """Predicted seconds from this step's start to the next step's, of a step that stands alone."""
        return self.work_s(work_of(plan, Widths()))

    def in_order(self, *, is_one_request: bool = False) -> Callable[[StepPlan], float]:
        """The same for plans that are told in the order in which they run, as a simulation tells them.

        ``is_one_request``: all prompts came in one request, so that one stream takes all tokens.
        """
        widths = Widths()

        def step_s(plan: StepPlan) -> float:
            nonlocal widths
            if _begins_a_load(plan.rows[0]):
                widths = Widths()  # one load's cost mustn't depend on the load that was simulated before
            work = work_of(plan, widths)
            spared = work.num_streams - 1 if is_one_request and work.num_streams else 0
            return self.work_s(work) - spared * self.seconds["stream"]

        return step_s

    def work_s(self, work: StepWork) -> float:
        """The same, of counts."""
        ordered: tuple[float, ...] = self._ordered  # type: ignore[attr-defined]
        return sum(price * count for price, count in zip(ordered, features(work), strict=True))


@dataclass(frozen=True)
class Fit:
    """A cost and how well it explains the steps that it was made of.  Outliers count in no figure."""

    cost: CostModel
    num_steps: int
    num_outliers: int
    r_squared: float  # share of the variance of seconds that is explained
    residual_s: Mapping[str, float]  # quantiles of predicted − measured
    relative_residual: Mapping[str, float]  # quantiles of predicted ÷ measured − 1


def fit(steps: Sequence[TimedStep]) -> Fit:
    """The non-negative prices that make errors least in shares of what is predicted, and figures of how good they are.

    In shares, since steps last from milliseconds to seconds; of the prediction and not of the measurement, since a sum
    of many steps is to be right (quasi-likelihood with a constant coefficient of variation: McCullagh and Nelder,
    Generalized Linear Models, 1989, chapter 9).  Raises :class:`CalibrationFailed` where the steps don't suffice.
    """
    counts, seconds = _checked(steps)
    predicted, kept = seconds, np.ones(len(steps), bool)
    prices = np.zeros(len(FEATURES))
    for _ in range(FIT_ROUNDS):
        prices = _least_squares(counts[kept], seconds[kept], predicted[kept])
        predicted = counts @ prices
        kept = np.abs(np.log(predicted / seconds)) <= np.log(OUTLIER_FACTOR)
    num_outliers = len(steps) - int(kept.sum())
    if num_outliers > MAX_OUTLIER_SHARE * len(steps):
        raise CalibrationFailed(
            f"{num_outliers} of {len(steps)} steps fit no common cost, over {MAX_OUTLIER_SHARE:.0%}: "
            "was the machine busy with something else?"
        )
    cost = CostModel(dict(zip(FEATURES, map(float, prices), strict=True)))
    return _judged(cost, predicted[kept], seconds[kept], num_outliers)


def _checked(steps: Sequence[TimedStep]) -> tuple[Floats, Floats]:
    """Counts ``[steps, features]`` and seconds ``[steps]``."""
    if len(steps) < MIN_STEPS:
        raise CalibrationFailed(f"{len(steps)} steps are too few to fit a cost; {MIN_STEPS} are needed")
    counts = np.array([features(step.work) for step in steps], np.float64)  # [steps, features]
    seconds = np.array([step.seconds for step in steps], np.float64)  # [steps]
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise CalibrationFailed(f"a step of {seconds.min()} s can't be: steps last longer than 0 s")
    widths = {step.work.num_new_tokens for step in steps}
    if len(widths) < 2:
        raise CalibrationFailed(f"every step had {widths.pop()} new tokens: what a token costs can't be told")
    return counts, seconds


def _least_squares(counts: Floats, seconds: Floats, unit_s: Floats) -> Floats:
    """Prices for errors measured in ``unit_s`` ``[steps]``."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise EverystepError("fitting a step's cost needs scipy: pip install 'everystep[bench]'") from None
    weighted = counts / unit_s[:, None]
    scale = np.maximum(weighted.max(axis=0), 1e-300)  # counts differ by millions: columns of one size
    prices: Floats = nnls(weighted / scale, seconds / unit_s)[0] / scale
    return prices


def _judged(cost: CostModel, predicted: Floats, seconds: Floats, num_outliers: int) -> Fit:
    error = predicted - seconds
    return Fit(
        cost=cost,
        num_steps=len(seconds) + num_outliers,
        num_outliers=num_outliers,
        r_squared=float(1.0 - (error**2).sum() / ((seconds - seconds.mean()) ** 2).sum()),
        residual_s=_quantiles(error),
        relative_residual=_quantiles(error / seconds),
    )


def _quantiles(values: Floats) -> dict[str, float]:
    return {name: percentile(list(map(float, values)), share) for name, share in QUANTILES.items()}
