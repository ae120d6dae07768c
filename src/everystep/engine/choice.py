"""One choice of a request on the client's side: its submit message, and its events turned into text.

Owns the fan-out of a request to sequences, the seeds of choices, and stop strings' power to end a sequence.
Ignorant of processes and asyncio: the async client and the offline LLM both use it.
"""

from __future__ import annotations

from collections.abc import Callable

from everystep.errors import EngineFailed, EverystepError
from everystep.messages import Delta, GenerationRequest, Submit
from everystep.sampling_params import MAX_SEED
from everystep.text import TextOutput, Tokenizer
from everystep.types import FinishReason, TokenEvent

SEED_STRIDE = 0x9E3779B97F4A7C15  # odd, so that seeds of choices stay apart modulo 2**64


def fan_out(
    request: GenerationRequest,
    *,
    eos_token_ids: tuple[int, ...],
    draw_seed: Callable[[], int],
    arrival_s: float,
) -> list[Submit]:
    """One message per choice, by index.  Ids are the request's with the index behind it."""
    submits = []
    for p, prompt_ids in enumerate(request.prompts):
        params = request.params_of(p)
        base = request.params.seed if request.params.seed is not None else draw_seed()
        for c in range(request.params.n):
            submits.append(
                Submit(
                    sequence_id=f"{request.request_id}-{p * request.params.n + c}",
                    request_id=request.request_id,
                    policy=request.policy,
                    prompt_ids=prompt_ids,
                    params=params,
                    seed=(base + c * SEED_STRIDE) & MAX_SEED,
                    eos_token_ids=eos_token_ids,
                    priority=request.priority,
                    arrival_s=arrival_s,
                )
            )
    return submits


class Choice:
    """The client's view of one sequence, from submit to its last delta."""

    def __init__(self, index: int, submit: Submit, tokenizer: Tokenizer) -> None:
        self.index = index
        self.submit = submit
        self.is_started = False  # has, or had, a seat
        self.is_ended = False
        self._text = TextOutput(tokenizer, submit.params, submit.prompt_ids)
        self._num_cached_tokens = 0

    @property
    def sequence_id(self) -> str:
        return self.submit.sequence_id

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens that were found in the cache, as far as is known yet."""
        return self._num_cached_tokens

    def take(self, event: TokenEvent) -> Delta:
        """The event as text.  A stop string ends the choice although the event doesn't."""
        reason, text = event.finish_reason, ""
        stop_reason: str | int | None = None
        self._num_cached_tokens = max(self._num_cached_tokens, event.num_cached_tokens)
        if event.token is not None:
            token_id = event.token.token_id
            piece = self._text.push(token_id, is_final=reason is FinishReason.STOP)
            text, stop_reason = piece.text, self._stop_token(reason, token_id)
            if piece.stop is not None:
                reason, stop_reason = FinishReason.STOP, piece.stop
        if reason is not None:
            last = self._text.finish()
            text += last.text
            if last.stop is not None:
                reason, stop_reason = FinishReason.STOP, last.stop
        failure = EngineFailed(event.error or "the engine failed") if reason is FinishReason.FAILED else None
        return self._delta(event, text, reason, stop_reason, failure)

    def end(self, reason: FinishReason, failure: EverystepError | None = None) -> Delta:
        """The last delta of a choice that ends on this side: aborted, out of time, or its worker died."""
        return self._delta(TokenEvent(self.sequence_id), self._text.finish().text, reason, None, failure)

    def _stop_token(self, reason: FinishReason | None, token_id: int) -> int | None:
        """The stop token that ended the choice, if the client named it; an end of text has none."""
        named = reason is FinishReason.STOP and token_id in self.submit.params.stop_token_ids
        return token_id if named else None

    def _delta(
        self,
        event: TokenEvent,
        text: str,
        reason: FinishReason | None,
        stop_reason: str | int | None,
        failure: EverystepError | None,
    ) -> Delta:
        self.is_ended = self.is_ended or reason is not None
        return Delta(
            index=self.index,
            sequence_id=self.sequence_id,
            text=text,
            tokens=() if event.token is None else (event.token,),
            finish_reason=reason,
            stop_reason=stop_reason,
            error=failure.message if failure else None,
            failure=failure,
            num_prompt_tokens=len(self.submit.prompt_ids),
            num_cached_tokens=self._num_cached_tokens,
        )
