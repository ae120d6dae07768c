"""Tokens of a request as OpenAI counts them.

Owns the sums.  Ignorant of whether a reply is streamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Usage:
    """Tokens of a request so far.  Each prompt counts once, whatever its number of choices."""

    num_prompt_tokens: int
    num_choices: int
    choices_per_prompt: int
    num_output_tokens: int = 0
    _num_cached: dict[int, int] = field(default_factory=dict)  # choice → its prompt tokens found in the cache

    def count(self, index: int, num_tokens: int, num_cached_tokens: int) -> None:
        """More of one choice."""
        self.num_output_tokens += num_tokens
        self._num_cached[index] = num_cached_tokens

    def as_json(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_output_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_output_tokens,
            "prompt_tokens_details": {"cached_tokens": self._num_cached_tokens()},
        }

    def _num_cached_tokens(self) -> int:
        """Prompt tokens that no choice had to compute."""
        n = self.choices_per_prompt
        groups = (range(begin, begin + n) for begin in range(0, self.num_choices, n))
        return sum(min(self._num_cached.get(index, 0) for index in group) for group in groups)


def usage_of(prompt_lens: Sequence[int], n: int) -> Usage:
    """A count at its start."""
    return Usage(sum(prompt_lens), len(prompt_lens) * n, n)
