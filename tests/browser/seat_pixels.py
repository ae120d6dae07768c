"""The picture of a lane's seats as pixels, and what its colours must be by the palette's rule.

Owns reading a canvas back and finding times on it.  Ignorant of how the page draws: where a time stands is found from
where the first and the last cell stand, and colours are mixed here anew from the table of hues in ``colours.js``.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everystep.api import page as package

Colour = tuple[int, int, int]
AXIS_CSS_PX = 18  # below the seats
GROUND = {
    "light": {"seat": "#efefea", "panel": "#ffffff", "ink": "#1c1c1a"},
    "dark": {"seat": "#26282c", "panel": "#1d1f22", "ink": "#e9e9e6"},
}
PREFILL_INK = {"light": ((0, 0, 0), 0.45), "dark": ((255, 255, 255), 0.55)}
HELD_STRENGTH = 0.45
READ = """
(canvas) => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, copy.width, copy.height);
  let text = "";
  for (let i = 0; i < data.length; i += 32768) text += String.fromCharCode(...data.subarray(i, i + 32768));
  resolve([canvas.width, canvas.height, devicePixelRatio, btoa(text)]);
})))
"""


def colour(text: str) -> Colour:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    """``one`` with a ``share`` of ``other``."""
    red, green, blue = (int(a * (1 - share) + b * share + 0.5) for a, b in zip(one, other, strict=True))
    return red, green, blue


def table() -> list[tuple[Colour, float, float]]:
    """Hue, and lift on light and dark, of each place, as ``colours.js`` lists them."""
    source = (Path(package.__file__).parent / "colours.js").read_text(encoding="utf-8")
    hues = dict(re.findall(r'^const ([A-Z]+) = "(#[0-9a-f]{6})";', source, re.MULTILINE))
    places = re.findall(r"\[([A-Z]+), (-?[0-9.]+), (-?[0-9.]+)\]", source)
    return [(colour(hues[name]), float(light), float(dark)) for name, light, dark in places]


def place_of(sequence_id: str, num_places: int) -> int:
    """FNV-1a of the request's id (Fowler, Noll, Vo; 32 bits), and then one further for each of its sequences."""
    request, index = sequence_id.rsplit("-", 1)
    digest = 2166136261
    for byte in request.encode():
        digest = (digest ^ byte) * 16777619 % 2**32
    return (digest + int(index)) % num_places


def cell_colours(sequence_id: str, scheme: str) -> dict[str, Colour]:
    """``decode``, ``prefill`` and the ground of ``held``."""
    places = table()
    hue, light, dark = places[place_of(sequence_id, len(places))]
    lift = light if scheme == "light" else dark
    decode = mixed(hue, (255, 255, 255) if lift > 0 else (0, 0, 0), abs(lift))
    ink, depth = PREFILL_INK[scheme]
    seat = colour(GROUND[scheme]["seat"])
    return {"decode": decode, "prefill": mixed(decode, ink, depth), "held": mixed(seat, decode, HELD_STRENGTH)}


def is_like(one: Colour, other: Colour, within: int = 2) -> bool:
    """Rounding may differ."""
    return all(abs(a - b) <= within for a, b in zip(one, other, strict=True))


@dataclass
class SeatPixels:
    """One reading of a lane's canvas."""

    width: int
    height: int
    ratio: float
    data: bytes
    num_rows: int

    def at(self, x: float, y: float) -> Colour:
        start = (int(y) * self.width + int(x)) * 4
        red, green, blue = self.data[start : start + 3]
        return red, green, blue

    @property
    def row_px(self) -> float:
        return (self.height - AXIS_CSS_PX * self.ratio) / self.num_rows

    def seat_y(self, seat: int) -> int:
        """Near the top of the cell, above any words."""
        return int(seat * self.row_px + 2)

    def busy_columns(self, scheme: str = "light") -> list[int]:
        """Where any seat isn't empty."""
        blank = colour(GROUND[scheme]["seat"])
        rows = [self.seat_y(seat) for seat in range(self.num_rows)]
        return [x for x in range(self.width) if any(not is_like(self.at(x, y), blank) for y in rows)]

    def colours_in(self, from_x: float, to_x: float, seat: int) -> set[Colour]:
        top, bottom = int(seat * self.row_px) + 1, int((seat + 1) * self.row_px) - 2
        return {self.at(x, y) for x in range(int(from_x), int(to_x)) for y in range(top, bottom)}


def canvas_of(page: Any, policy: str) -> Any:
    return page.locator(f'.lane[data-policy="{policy}"] canvas')


def read_pixels(page: Any, policy: str, num_rows: int) -> SeatPixels:
    """Of the frame after next."""
    width, height, ratio, data = canvas_of(page, policy).evaluate(READ)
    return SeatPixels(width, height, ratio, base64.b64decode(data), num_rows)


class TimeScale:
    """Where times stand: the first busy column is the first step's start, the last one the last step's end."""

    def __init__(self, pixels: SeatPixels, steps: list[dict[str, Any]], scheme: str = "light") -> None:
        columns = pixels.busy_columns(scheme)
        self._left, self._start_s = columns[0], steps[0]["start_s"]
        self.px_per_s = (columns[-1] + 1 - columns[0]) / (steps[-1]["end_s"] - self._start_s)

    def x(self, at_s: float) -> float:
        return self._left + (at_s - self._start_s) * self.px_per_s

    def middle(self, step: dict[str, Any]) -> float:
        return (self.x(step["start_s"]) + self.x(step["end_s"])) / 2
