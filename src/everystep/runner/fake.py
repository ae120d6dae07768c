"""A runner without a model: scripted tokens and times over a cache that behaves like the real one.

Owns a paged "cache" of token ids.  Each token is a hash of the whole text before it *as read back through the row's
block table*, so a policy that loses, doubles or wrongly shares a block gets wrong tokens.  Ships in the package:
users test their own policies with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from everystep.types import Row, SampledToken, StepPlan, StepResult

EMPTY = -1


class FakeRunner:
    """``step_s(plan)`` plays a step's time; ``fails`` names sequences whose rows fail, and in which words.

    ``script`` fixes a sequence's output tokens by its id: the i-th output is ``script[id][i]``, beyond its end the hash.
    """

    name = "fake"
    precision = "none"
    num_threads = 1

    def __init__(
        self,
        *,
        vocab_size: int = 1000,
        block_size: int = 32,
        kv_block_bytes: int = 32 * 8,
        step_s: Callable[[StepPlan], float] | None = None,
        script: Mapping[str, Sequence[int]] | None = None,
        fails: Mapping[str, str] | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.kv_block_bytes = kv_block_bytes
        self.script = dict(script or {})
        self.fails = dict(fails or {})
        self.num_steps = 0
        self._step_s = step_s
        self._cache = np.full((0, block_size), EMPTY, np.int64)  # [blocks, block_size]

    def allocate(self, num_blocks: int) -> None:
        """Make the cache."""
        self._cache = np.full((num_blocks, self.block_size), EMPTY, np.int64)

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Nothing is cold here."""

    def run(self, plan: StepPlan) -> StepResult:
        """Write the rows' new tokens into their blocks, then draw from what the blocks hold."""
        self.num_steps += 1
        for row in plan.rows:
            self._write(row)
        ids = [row.sequence.sequence_id for row in plan.rows]
        errors = {sequence_id: self.fails[sequence_id] for sequence_id in ids if sequence_id in self.fails}
        tokens = {
            row.sequence.sequence_id: SampledToken(self._draw(row))
            for row in plan.rows
            if row.samples and row.sequence.sequence_id not in errors
        }
        return StepResult(tokens, errors, self._step_s(plan) if self._step_s else None)

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, row: Row) -> None:
        for position in range(row.start, row.end):
            block = row.sequence.block_ids[position // self.block_size]
            self._cache[block, position % self.block_size] = row.sequence.token_ids[position]

    def _draw(self, row: Row) -> int:
        sequence = row.sequence
        script = self.script.get(sequence.sequence_id, ())
        if sequence.num_output_tokens < len(script):
            return script[sequence.num_output_tokens]
        context = self._cache[sequence.block_ids].reshape(-1)[: row.end]
        return next_token(context.tolist(), self.vocab_size)


def next_token(token_ids: Sequence[int], vocab_size: int) -> int:
    """What the fake model says after ``token_ids``."""
    digest = blake2b(np.asarray(token_ids, np.int64).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % vocab_size


def generate(prompt_ids: Sequence[int], num_tokens: int, vocab_size: int) -> list[int]:
    """The fake model's continuation of one prompt alone: what every policy must reproduce."""
    token_ids = list(prompt_ids)
    for _ in range(num_tokens):
        token_ids.append(next_token(token_ids, vocab_size))
    return token_ids[len(prompt_ids) :]
