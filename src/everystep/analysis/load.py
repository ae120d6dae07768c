"""A load: who arrives when, with how long a prompt, wanting how many tokens.

Owns :class:`Arrival`, the one form in which the benchmark sends, the simulator simulates and the planner plans.
Ignorant of text: a prompt of the given length is made up where it is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Arrival:
    """One prompt.  ``at_s`` is when it is due to be sent, in seconds from the load's start."""

    at_s: float
    prompt_tokens: int
    output_tokens: int  # generated in full: an end of text is ignored


Load = Sequence[Arrival]  # by ``at_s``, earliest first


def closed(n: int, prompt_tokens: int, output_tokens: int) -> list[Arrival]:
    """``n`` equal prompts at once."""
    return [Arrival(0.0, prompt_tokens, output_tokens)] * n
