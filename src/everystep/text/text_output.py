"""The text of one sequence as it grows: detokeniser and stop strings together.

Owns their order, and which tokens show no text: special ones, and the stop token that ends the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from everystep.sampling_params import SamplingParams
from everystep.text.detokenizer import Detokenizer
from everystep.text.stop_strings import StopStrings, TextDelta
from everystep.text.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"


class TextOutput:
    """Push each token, then ``finish``.  After a stop string nothing more comes."""

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt_ids: Sequence[int] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer, prompt_ids)
        self._stops = StopStrings(params.stop)
        self._min_tokens = params.min_tokens
        self._num_tokens = 0

    def push(self, token_id: int, *, is_final: bool = False) -> TextDelta:
        """The text that this token makes certain.  ``is_final``: the token ended the sequence and shows no text."""
        self._num_tokens += 1
        if is_final:
            return TextDelta("")
        return self._stops.push(self._detokenizer.push(token_id), is_armed=self._num_tokens >= self._min_tokens)

    def finish(self) -> TextDelta:
        """What was held back: the begin of a stop string that never came.

        A character that the end cut in two isn't text yet, so it is left out, not shown as U+FFFD.
        """
        whole = self._detokenizer.flush().rstrip(REPLACEMENT)
        last = self._stops.push(whole, is_armed=self._num_tokens >= self._min_tokens)
        return TextDelta(last.text + self._stops.flush(), last.stop)
