"""How things look in this terminal: cells of seats, colours of sequences, and text that any terminal takes.

Owns characters and colours.  Prefill, decode, held and empty differ in the character, so that they can be told apart
without colours; where there are none, a letter tells the sequences apart.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from rich.console import Console

# Those of the live page in the dark, so that a sequence is the same in both.  colours.js says where they come from.
COLOURS = (
    "#338ec1", "#dd7e33", "#005b8e", "#008e68", "#67bceb", "#787221", "#346c8c",
    "#ebb233", "#005f45", "#d694b9", "#735000", "#eaaf80", "#7a4964", "#f5ec7b",
)  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Looks:
    """What a terminal can show."""

    has_colours: bool
    encoding: str
    prefill: str
    decode: str
    held: str
    empty: str
    joint: str  # between two figures
    rest: str  # where something was cut off

    def cell(self, sequence_id: str, phase: str) -> tuple[str, str]:
        """Character and style of a seat that is taken."""
        if not self.has_colours:
            letter = LETTERS[place_of(sequence_id, len(LETTERS))]
            return {"prefill": letter.upper(), "decode": letter}.get(phase, self.held), ""
        style = COLOURS[place_of(sequence_id, len(COLOURS))]
        return {"prefill": self.prefill, "decode": self.decode}.get(phase, self.held), style

    def plain(self, words: str) -> str:
        """Somebody else's words, as text that moves no cursor and that the terminal can show."""
        shown = "".join(character if character.isprintable() else "?" for character in words)
        return shown.encode(self.encoding, "replace").decode(self.encoding)

    def legend(self) -> list[str]:
        """What the cells mean, the more important first."""
        prefill, decode = (self.prefill, self.decode) if self.has_colours else ("A", "a")
        who = "colour" if self.has_colours else "letter"
        cells = f"{prefill} prefill  {decode} decode  {self.held} held  {self.empty} empty"
        return [cells, f"a cell is a step, a {who} a sequence"]


def looks_of(console: Console) -> Looks:
    """What this console can show: NO_COLOR, a dumb terminal and encodings without the characters are heeded."""
    has_colours = console.color_system is not None and not console.no_color
    try:
        "█▄░·…".encode(console.encoding)
    except UnicodeEncodeError:
        return Looks(has_colours, console.encoding, "#", "=", ":", ".", " - ", "...")
    return Looks(has_colours, console.encoding, "█", "▄", "░", "·", " · ", "…")


@functools.lru_cache(maxsize=4_096)
def place_of(sequence_id: str, num_places: int) -> int:
    """The same for a sequence wherever it is shown.  Those of one request take neighbouring places."""
    request, _, index = sequence_id.rpartition("-")
    if not (request and index.isdecimal()):
        request, index = sequence_id, "0"
    hashed = 2166136261  # FNV-1a, 32 bits
    for byte in request.encode():
        hashed = (hashed ^ byte) * 16777619 & 0xFFFFFFFF
    return (hashed + int(index)) % num_places


def short_name(sequence_id: str) -> str:
    """The last part of an id, which is enough to tell those of one screen apart."""
    parts = sequence_id.split("-")
    return sequence_id if len(parts) < 3 else f"{parts[1][-4:]}-{parts[-1]}"
