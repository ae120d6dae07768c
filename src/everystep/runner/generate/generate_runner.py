"""The runner around ``model.generate()``: which call serves a plan, and what it says of itself.

Owns the model, the thread that generates and the round that runs.  Ignorant of why these rows run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Sized
from pathlib import Path

import torch

from everystep.runner.generate.draws import Draws
from everystep.runner.generate.helper_thread import HelperThread
from everystep.runner.generate.loading import load, plain_config, resolve_precision
from everystep.runner.generate.lockstep import Round
from everystep.runner.generate.rectangle import left_padded
from everystep.runner.sampling import Sampler
from everystep.runner.threads import cpu_features, usable_cpus
from everystep.types import Row, StepPlan, StepResult

logger = logging.getLogger(__name__)

BLOCK_SIZE = 32  # as in the OpenVINO runner, so that both admit alike
WARM_ROWS = 4
WARM_PROMPT = [3] * 8


class GenerateRunner:
    """Implements :class:`everystep.types.Runner` for rounds: a plan starts one, or takes the running one a token on.

    Reads the model when made.  :class:`UnsupportedOption` for a precision that it doesn't do, :class:`ModelError` for a
    folder that can't be read, :class:`UnsupportedModel` for a model that can't run as a left-padded rectangle.

    ``generate()`` keeps its own KV cache, as large as the rectangle with its padding.  The blocks of the plan are only
    counted, so that admission is the same as with a paged cache.
    """

    name = "hf-generate"
    lanes = ("static",)
    block_size = BLOCK_SIZE

    def __init__(self, folder: Path, *, precision: str = "auto", num_threads: int | None = None) -> None:
        self.precision = resolve_precision(precision, cpu_features())
        self.num_threads = num_threads or usable_cpus()
        torch.set_num_threads(self.num_threads)
        self._loaded = load(Path(folder), self.precision)
        self.vocab_size = self._loaded.vocab_size
        self.kv_block_bytes = max(1, self._loaded.token_bytes * BLOCK_SIZE)
        self.num_blocks = 0
        self._sampler = Sampler(self.vocab_size, self.num_threads)
        self._thread = HelperThread("everystep-generate", lambda: torch.set_num_threads(self.num_threads))
        self._round: Round | None = None
        self._num_rounds = 0

    def allocate(self, num_blocks: int) -> None:
        """Remember the size; ``generate()`` makes its own cache."""
        self.num_blocks = num_blocks

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Run a small rectangle where the rounds will run, so that no client pays for a first time."""
        rectangle = left_padded([WARM_PROMPT[: min(len(WARM_PROMPT), max_tokens)]] * min(WARM_ROWS, max_rows))
        self._thread.call(
            lambda: self._loaded.model.generate(
                rectangle.input_ids, attention_mask=rectangle.attention_mask, generation_config=plain_config(2)
            )
        )

    # --- a step ----------------------------------------------------------------------------------
    def run(self, plan: StepPlan) -> StepResult:
        """The round's next token for each row.  Raises what ``generate()`` raised; the round is over then."""
        rows, errors = self._split(plan.rows)
        if not rows:
            return StepResult({}, errors)
        current = self._round_of(rows)
        try:
            result = current.step(rows)
        except BaseException:
            self._end_round()
            raise
        return StepResult(result.tokens, {**result.errors, **errors}) if errors else result

    def close(self) -> None:
        """End the round and the thread; free the model."""
        self._end_round()
        self._thread.close()
        self._sampler.close()
        del self._loaded

    def _split(self, rows: Sized[Row]) -> tuple[Sized[Row], dict[str, str]]:
        """The rows that the model's positions reach, and why the others fail, by sequence id."""
        limit = self._loaded.max_positions
        if limit is None or all(row.end <= limit for row in rows):
            return rows, {}
        words = f"the text is over the {limit} tokens that this model computes alike in any company"
        errors = {row.sequence.sequence_id: words for row in rows if row.end > limit}
        return [row for row in rows if row.end <= limit], errors

    def _round_of(self, rows: Sized[Row]) -> Round:
        if all(row.start == 0 for row in rows):
            self._end_round()  # a round whose last members left is waiting for a step that nobody asks for
            return self._start_round(rows)
        assert self._round is not None, "a plan goes on with a round, but none runs"
        assert self._round.is_continued_by(rows), "a plan's rows aren't the running round's next step"
        return self._round

    def _start_round(self, rows: Sized[Row]) -> Round:
        assert all(row.num_new_tokens == row.sequence.num_prompt_tokens for row in rows), "a round reads whole prompts"
        new = self._round = Round(rows, Draws(self._sampler))
        logger.info(
            "round %d: [%d, %d], %d new tokens at most",
            self._num_rounds,
            len(rows),
            new.rectangle.width,
            new.max_new_tokens,
        )
        self._num_rounds += 1
        self._thread.start(lambda: new.generate(self._loaded))  # after the round before it, which has been told to end
        return new

    def _end_round(self) -> None:
        if self._round is not None:
            self._round.abandon()
            self._round = None
