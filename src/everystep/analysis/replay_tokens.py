"""A runner that says what was recorded: a schedule is replayed without a model, in milliseconds.

Owns nothing but the shapes that a runner has.  Ignorant of logits; of the cache it knows the size of a block only.
"""

from __future__ import annotations

from everystep.analysis.replay import Playback
from everystep.observe.schedule import Header, Stepped
from everystep.types import FinishReason, SampledToken, StepPlan, StepResult

NO_TOKEN = SampledToken(0)  # for a row whose token no client was told of: it was aborted during the pass


class RecordedTokens:
    """Implements :class:`everystep.types.Runner` for the turn that a playback is at."""

    name = "recorded tokens"
    kv_block_bytes = 0

    def __init__(self, header: Header, playback: Playback) -> None:
        self.block_size = header.block_size
        self.vocab_size = header.vocab_size
        self._playback = playback

    def allocate(self, num_blocks: int) -> None:
        """Nothing is kept."""

    def warm_up(self, max_rows: int, max_tokens: int) -> None:
        """Nothing is cold here."""

    def run(self, plan: StepPlan) -> StepResult:
        """The recorded step's tokens and failures, by sequence."""
        result, ids = self._playback.turn.result, self._playback.ids
        if not isinstance(result, Stepped):  # its process ended within the pass, or failed behind it
            result = Stepped(0.0)
        tokens = {row.sequence.sequence_id: NO_TOKEN for row in plan.rows if row.samples}
        tokens |= {ids[token.n]: SampledToken(token.token_id) for token in result.tokens}
        failed = [end for end in result.ends if end.reason is FinishReason.FAILED]
        return StepResult(tokens, {ids[end.n]: end.error or "" for end in failed})

    def close(self) -> None:
        """Nothing is held."""
