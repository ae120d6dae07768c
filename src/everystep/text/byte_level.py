"""The alphabet of byte-level BPE: each byte has a printable character (Radford et al., 2019; GPT-2).

Owns the table.  Bytes that are printable in Latin-1 stand for themselves, the others take characters from U+0100 on.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _byte_of_char() -> dict[str, int]:
    table = {chr(byte): byte for byte in _PRINTABLE}
    others = (byte for byte in range(256) if byte not in _PRINTABLE)
    return table | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_of_char()


def bytes_of_token(token: str) -> bytes:
    """A token's bytes; one with a character outside the alphabet (an added token) stands for its own text."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in token])
    except KeyError:
        return token.encode()
