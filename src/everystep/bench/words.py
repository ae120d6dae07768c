"""Prompts as text, for servers that take no token ids.

Owns the words.  Each is one token, with the blank before it, in the vocabularies in use (byte-level BPE,
SentencePiece), so that a text of n words has about n tokens; how many it had, the server says.
"""

from __future__ import annotations

from collections.abc import Sequence

_COMMON = (
    "the of and to in is was for on that with by as at from his it an were are which this be had has her not but or "
    "have they one you all who their more when about would there been its will can time she two new first also after "
    "year may only over some such into other could most people like many than then these years made no up out them "
    "him what if so work three where life day home way city world water house school war great place long large small "
    "high old both line game name group part end land book light night river road island north south east west"
)
WORDS = tuple(_COMMON.split())


def text_of(prompt: Sequence[int]) -> str:
    """As many words as ``prompt`` has ids; equal ids make equal words."""
    return " ".join(WORDS[token % len(WORDS)] for token in prompt)
