"""A forward pass, and what becomes of one that raises: whose fault it was, and whether the runner is still sound.

Owns the search for the rows at fault and the count of failures in a row.  Ignorant of lanes, clocks and processes.

A runner says in its result which rows failed, where it knows.  An exception names no row.  So the plan's rows are
tried again by halves: a half that passes has its tokens, one that raises is halved on.  Two rows at fault are always
found, more of them as a rule; if not even a quarter passes, it isn't some rows' fault, and all fail together.  A row's
tokens are the same in any part, since what is drawn depends on its own text, seed and position only; its keys and
values are written to the same places again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from everystep.sampling_params import SamplingParams
from everystep.types import Row, Runner, StepPlan, StepResult
from everystep.types import Sequence as TokenSequence

logger = logging.getLogger(__name__)

Rows = tuple[Row, ...]
PASSES_A_LEVEL = 4  # two rows at fault take so many for each halving
MAX_NAMED = 8  # sequences in one line of the log


class Passes:
    """Runs plans on one runner and never raises what a pass raised.

    Rows are tried again only where the runner says ``is_repeatable``: the same rows may be run twice, whole or in part.
    ``on_pass`` is told of each pass before it begins.
    """

    def __init__(self, runner: Runner, on_pass: Callable[[StepPlan], None]) -> None:
        self.num_failed = 0  # passes in a row that gave no row anything, by no row's own fault
        self.last_failure = ""
        self._runner = runner
        self._on_pass = on_pass
        self._is_repeatable = bool(getattr(runner, "is_repeatable", False))

    def run(self, plan: StepPlan) -> StepResult:
        """The plan's result.  At most 4·log2(rows) passes more where the first one raises, and one for a probe."""
        try:
            result = self._pass(plan)
        except Exception as error:
            logger.exception("the forward pass of %d rows failed", len(plan.rows))
            return self._search(plan, error)
        self.num_failed = 0
        return result

    def _pass(self, plan: StepPlan) -> StepResult:
        self._on_pass(plan)
        return self._runner.run(plan)

    def _search(self, plan: StepPlan, error: Exception) -> StepResult:
        """What is left to whom when the rows at fault are taken out."""
        suspects, passed = [(plan.rows, error)], list[StepResult]()
        num_left = PASSES_A_LEVEL * math.ceil(math.log2(len(plan.rows))) if self._is_repeatable else 0
        while parts := [half for rows, _ in suspects for half in _halves(rows)]:
            if len(parts) > num_left:
                break
            num_left -= len(parts)
            num_passed = len(passed)
            alone = [suspect for suspect in suspects if len(suspect[0]) == 1]
            suspects = alone + self._try_parts(plan.policy, parts, passed)
            if len(parts) >= PASSES_A_LEVEL and len(passed) == num_passed:
                break  # nobody's own fault
        errors = {row.sequence.sequence_id: _words(error) for rows, error in suspects for row in rows}
        self.last_failure = _words(error)
        self.num_failed = 0 if passed or self._is_sound(plan) else self.num_failed + 1
        named = ", ".join(list(errors)[:MAX_NAMED]) + (", …" if len(errors) > MAX_NAMED else "")
        logger.error("%d of the %d rows fail with it: %s", len(errors), len(plan.rows), named)
        return _merged(passed, errors)

    def _try_parts(self, lane: str, parts: list[Rows], passed: list[StepResult]) -> list[tuple[Rows, Exception]]:
        """The parts that raise, and what; results of the others go to ``passed``."""
        raised: list[tuple[Rows, Exception]] = []
        for rows in parts:
            try:
                passed.append(self._pass(StepPlan(lane, rows)))
            except Exception as error:
                logger.debug("a pass of %d of the rows failed as well", len(rows), exc_info=True)
                raised.append((rows, error))
        return raised

    def _is_sound(self, plan: StepPlan) -> bool:
        """Whether a lone token passes, where all of the plan's rows failed: else it isn't for their sake.

        It is written into the block that a failed row was about to write: that one has no other owner.
        """
        if not self._is_repeatable:
            return False
        row = plan.rows[0]
        block = row.sequence.block_ids[row.start // self._runner.block_size]
        text = TokenSequence("probe", "probe", plan.policy, [0], 1, SamplingParams(max_tokens=1), 0, frozenset())
        text.block_ids = [block]
        try:
            self._pass(StepPlan(plan.policy, (Row(text, row.seat, 0, 1),)))
        except Exception:
            logger.debug("a lone token failed as well", exc_info=True)
            return False
        return True


def _halves(rows: Rows) -> tuple[Rows, ...]:
    """None of a single row, which can't be told apart any more."""
    middle = len(rows) // 2
    return (rows[:middle], rows[middle:]) if middle else ()


def _words(error: Exception) -> str:
    return f"the forward pass failed: {type(error).__name__}: {error}"


def _merged(passed: Sequence[StepResult], errors: dict[str, str]) -> StepResult:
    """One result of parts.  A scripted time is the sum of theirs; a way through the pass is any that isn't the usual.

    A replay that is told the unusual way takes it in the same parts.
    """
    tokens = {name: token for part in passed for name, token in part.tokens.items()}
    own_errors = {name: words for part in passed for name, words in part.errors.items()}
    times_s = [part.step_s for part in passed if part.step_s is not None]
    path = next((part.path for part in passed if part.path), "")
    return StepResult(tokens, {**own_errors, **errors}, sum(times_s) if times_s else None, path)
