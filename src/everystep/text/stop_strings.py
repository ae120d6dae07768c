"""Stop strings: seen wherever they lie across tokens, never leaked in part.

Owns the text that is held back because it could still become a stop string.  Ignorant of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that may be shown now; ``stop`` is the stop string that ended the text, which isn't part of it."""

    text: str
    stop: str | None = None


class StopStrings:
    """Push text, take what may be shown.  The text is cut at the earliest begin of any stop string; of two that
    begin together, before the shorter (it is complete first)."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(sorted(stops, key=len))
        self._held = ""
        self._is_stopped = False

    def push(self, text: str, *, is_armed: bool = True) -> TextDelta:
        """More text.  While not armed (too few tokens yet) nothing stops and nothing is held."""
        if self._is_stopped:
            return TextDelta("")
        if not self._stops:
            return TextDelta(text)
        text, self._held = self._held + text, ""
        if not is_armed:
            return TextDelta(text)
        begin, stop = self._find(text)
        if stop is not None:
            self._is_stopped = True
            return TextDelta(text[:begin], stop)
        cut = len(text) - self._num_to_hold(text)
        self._held = text[cut:]
        return TextDelta(text[:cut])

    def flush(self) -> str:
        """What was held and never became a stop string."""
        text, self._held = self._held, ""
        return text

    def _find(self, text: str) -> tuple[int, str | None]:
        found = [(text.find(stop), stop) for stop in self._stops if stop in text]
        return min(found, key=lambda hit: hit[0], default=(0, None))  # the first of equals is the shorter

    def _num_to_hold(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        longest = min(len(text), len(self._stops[-1]) - 1)
        for length in range(longest, 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
