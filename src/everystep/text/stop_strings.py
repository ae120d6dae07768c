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
    """Push text, take what may be shown.

    Text is read character by character, so that the outcome doesn't depend on how it was cut in tokens: the stop
    string that is complete first ends the text, of several the longest; the text is cut before its begin.  Each
    character costs the same however long the stop strings are (Knuth, Morris, Pratt, 1977).
    """

    def __init__(self, stops: tuple[str, ...], *, is_included: bool = False) -> None:
        self._matchers = [_Matcher(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._is_included = is_included
        self._held = ""
        self._is_stopped = False

    def push(self, text: str, *, is_armed: bool = True) -> TextDelta:
        """More text.  While not armed (too few tokens yet) no stop string may end, though one may begin."""
        if self._is_stopped:
            return TextDelta("")
        if not self._matchers:
            return TextDelta(text)
        all_text = self._held + text
        for at, char in enumerate(text, start=len(self._held) + 1):
            ended = [matcher for matcher in self._matchers if matcher.push(char)]  # each must see each character
            if ended and is_armed:
                return self._end(all_text[:at], ended[0].stop)
        cut = len(all_text) - max(matcher.num_matched for matcher in self._matchers)
        self._held = all_text[cut:]
        return TextDelta(all_text[:cut])

    def flush(self) -> str:
        """What was held and never became a stop string."""
        text, self._held = self._held, ""
        return text

    def _end(self, text: str, stop: str) -> TextDelta:
        self._is_stopped = True
        self._held = ""
        return TextDelta(text if self._is_included else text[: len(text) - len(stop)], stop)


class _Matcher:
    """How much of one stop string the text ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.num_matched = 0
        self._fallback = _borders(stop)

    def push(self, char: str) -> bool:
        """Whether ``char`` completes the stop string; if so, what could begin the next one remains matched."""
        num = self.num_matched
        while num and self.stop[num] != char:
            num = self._fallback[num]
        if self.stop[num] == char:
            num += 1
        is_complete = num == len(self.stop)
        self.num_matched = self._fallback[num] if is_complete else num
        return is_complete


def _borders(stop: str) -> list[int]:
    """For each length: the longest proper begin of ``stop`` that its first ``length`` characters end with."""
    borders = [0, 0]
    for char in stop[1:]:
        num = borders[-1]
        while num and stop[num] != char:
            num = borders[num]
        borders.append(num + 1 if stop[num] == char else 0)
    return borders
