"""A runner without a model: deterministic tokens and scripted times over a cache that behaves like the real one.

Owns a paged "cache".  As in a real one, what stands at a position depends on every token up to it, is computed from
what the row's block table shows for the position before, and is read back through that table to draw a token.  So a
policy that loses, doubles, overwrites or wrongly shares a block gets wrong tokens.  Ships in the package: users test
their own policies with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from everystep.types import Row, SampledToken, StepPlan, StepResult, TokenLogprob

EMPTY = np.uint64(0)
_MASK = 2**64 - 1
_MULTIPLIER = 6364136223846793005  # of Knuth's MMIX generator


class FakeRunner:
    """A model whose next token is a hash of the whole text.

    ``step_s(plan)`` plays a step's time.  ``script[sequence_id][i]`` is that sequence's output token ``i``; beyond
    the script's end the hash speaks.  ``fails[sequence_id]`` are the words in which that sequence's row fails.  Both
    may be changed between steps.  With ``eos_token_id`` the model ends a text at a share ``eos_rate`` of all
    positions, and says that token nowhere else.  What sampling parameters ask for isn't looked at, but for
    ``logprobs``: the drawn token has probability 1.
    """

    name = "fake"
    is_repeatable = True
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
        eos_token_id: int | None = None,
        eos_rate: float = 0.0,
    ) -> None:
        self.vocab_size = vocab_size
        self.block_size = block_size
        self.kv_block_bytes = kv_block_bytes
        self.script = dict(script or {})
        self.fails = dict(fails or {})
        self.eos_token_id = eos_token_id
        self.eos_rate = eos_rate
        self.num_steps = 0
        self._step_s = step_s
        self._cache = _empty_cache(0, block_size)

    def allocate(self, num_blocks: int) -> None:
        """Make the cache."""
        self._cache = _empty_cache(num_blocks, self.block_size)

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
            row.sequence.sequence_id: self._sample(row)
            for row in plan.rows
            if row.samples and row.sequence.sequence_id not in errors
        }
        return StepResult(tokens, errors, self._step_s(plan) if self._step_s else None)

    def close(self) -> None:
        """Nothing is held."""

    def _write(self, row: Row) -> None:
        block_ids, size = row.sequence.block_ids, self.block_size
        last = row.start - 1
        state = int(self._cache[block_ids[last // size], last % size]) if row.start else 0
        for position in range(row.start, row.end):
            state = _mix(state, row.sequence.token_ids[position])
            self._cache[block_ids[position // size], position % size] = state

    def _sample(self, row: Row) -> SampledToken:
        token_id = self._draw(row)
        num_logprobs = row.sequence.params.logprobs
        if num_logprobs is None:
            return SampledToken(token_id)
        return SampledToken(token_id, 0.0, (TokenLogprob(token_id, 0.0),) * min(num_logprobs, 1))

    def _draw(self, row: Row) -> int:
        sequence = row.sequence
        script = self.script.get(sequence.sequence_id, ())
        if sequence.num_output_tokens < len(script):
            return script[sequence.num_output_tokens]
        num_blocks = -(-row.end // self.block_size)
        states = self._cache[sequence.block_ids[:num_blocks]].reshape(-1)[: row.end]  # [context]
        return _choose(states, self.vocab_size, self.eos_token_id, self.eos_rate)


def next_token(
    token_ids: Iterable[int], vocab_size: int, *, eos_token_id: int | None = None, eos_rate: float = 0.0
) -> int:
    """What the fake model says after ``token_ids``, computed without any cache."""
    states, state = [], 0
    for token_id in token_ids:
        state = _mix(state, token_id)
        states.append(state)
    return _choose(np.array(states, np.uint64), vocab_size, eos_token_id, eos_rate)


def generate(prompt_ids: Sequence[int], num_tokens: int, vocab_size: int) -> list[int]:
    """The fake model's continuation of one prompt alone: what every policy must reproduce."""
    token_ids = list(prompt_ids)
    for _ in range(num_tokens):
        token_ids.append(next_token(token_ids, vocab_size))
    return token_ids[len(prompt_ids) :]


def _mix(state: int, token_id: int) -> int:
    """What the cache holds at a position: a 64-bit mixture of what it holds before and the token."""
    return (state * _MULTIPLIER + token_id + 1) & _MASK


def _choose(states: npt.NDArray[np.uint64], vocab_size: int, eos_token_id: int | None, eos_rate: float) -> int:
    """A token from the whole context's states ``[context]``, so that one lost position changes it."""
    digest = blake2b(states.tobytes(), digest_size=16).digest()
    drawn, share = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") / 2**64
    token_id = drawn % vocab_size
    if eos_token_id is None:
        return token_id
    if share < eos_rate:
        return eos_token_id
    return token_id if token_id != eos_token_id else (token_id + 1) % vocab_size


def _empty_cache(num_blocks: int, block_size: int) -> npt.NDArray[np.uint64]:
    return np.full((num_blocks, block_size), EMPTY, np.uint64)  # [blocks, block_size]
