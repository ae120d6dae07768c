"""How far apart two colours are, for those who see all of them and for those who don't.

Owns the sums.  Sources: Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
Deficiency" (IEEE TVCG 15, 2009), their matrices for severity 1.0; Sharma, Wu and Dalal, "The CIEDE2000 Color-Difference
Formula" (Color Research and Application 30, 2005), with the pairs that they published for testing; WCAG 2.2 for
contrast.
"""

from __future__ import annotations

from itertools import pairwise
from math import atan2, cos, degrees, exp, hypot, radians, sin, sqrt

Channels = tuple[float, float, float]

SIGHT = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881),
    ),
}  # fmt: skip
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)  # D65


def linear(text: str) -> Channels:
    """Of ``#rrggbb``."""
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(share: float) -> float:
    return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    dark, light = sorted(_times(TO_XYZ, linear(text))[1] for text in (one, other))
    return (light + 0.05) / (dark + 0.05)


def difference(one: str, other: str, sight: str) -> float:
    """CIEDE2000; some 2 can just be told apart side by side, 10 at a glance."""
    return ciede2000(_lab(one, sight), _lab(other, sight))


def _lab(text: str, sight: str) -> Channels:
    seen = _times(SIGHT[sight], linear(text))
    x, y, z = (_bent(value / white) for value, white in zip(_times(TO_XYZ, _clipped(seen)), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _bent(share: float) -> float:
    return float(share ** (1 / 3)) if share > 216 / 24389 else (24389 / 27 * share + 16) / 116


def _clipped(channels: Channels) -> Channels:
    red, green, blue = (min(1.0, max(0.0, channel)) for channel in channels)
    return red, green, blue


def _times(matrix: tuple[Channels, ...], vector: Channels) -> Channels:
    x, y, z = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return x, y, z


def ciede2000(one: Channels, other: Channels) -> float:
    """Of two colours in CIELAB, all weights 1."""
    mean_chroma = (hypot(*one[1:]) + hypot(*other[1:])) / 2
    stretch = 1 + 0.5 * (1 - sqrt(mean_chroma**7 / (mean_chroma**7 + 25**7)))
    (light1, chroma1, hue1), (light2, chroma2, hue2) = (_polar(lab, stretch) for lab in (one, other))
    light, chroma = (light1 + light2) / 2, (chroma1 + chroma2) / 2
    turn = 0.0 if chroma1 * chroma2 == 0 else (hue2 - hue1 + 180) % 360 - 180
    hue_step = 2 * sqrt(chroma1 * chroma2) * sin(radians(turn / 2))
    hue = _mean_hue(hue1, hue2, is_grey=chroma1 * chroma2 == 0)
    weight = 1 + sum(share * cos(radians(n * hue - by)) for share, n, by in HUE_TERMS)
    of_light = (light2 - light1) / (1 + 0.015 * (light - 50) ** 2 / sqrt(20 + (light - 50) ** 2))
    of_chroma = (chroma2 - chroma1) / (1 + 0.045 * chroma)
    of_hue = hue_step / (1 + 0.015 * chroma * weight)
    blue_turn = 30 * exp(-(((hue - 275) / 25) ** 2))
    rotation = -2 * sqrt(chroma**7 / (chroma**7 + 25**7)) * sin(radians(2 * blue_turn))
    return sqrt(of_light**2 + of_chroma**2 + of_hue**2 + rotation * of_chroma * of_hue)


HUE_TERMS = ((-0.17, 1, 30), (0.24, 2, 0), (0.32, 3, -6), (-0.20, 4, 63))  # share, multiple of the hue, degrees off


def _polar(lab: Channels, stretch: float) -> Channels:
    light, a, b = lab
    return light, hypot(a * stretch, b), degrees(atan2(b, a * stretch)) % 360


def _mean_hue(one: float, other: float, *, is_grey: bool) -> float:
    if is_grey:
        return one + other
    if abs(one - other) <= 180:
        return (one + other) / 2
    return (one + other + 360) / 2 if one + other < 360 else (one + other - 360) / 2


def least(colours: list[str], sight: str) -> float:
    """The difference of the two that are next to each other in the list, round about, and least apart."""
    return min(difference(one, other, sight) for one, other in pairwise([*colours, colours[0]]))
