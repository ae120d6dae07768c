"""Keys of text beginnings: equal keys mean equal tokens from the very first on.

Owns the chained digest, and the keys of each live sequence's blocks so that none is computed twice.  Ignorant of
where blocks lie.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceABC
from hashlib import blake2b

from everystep.types import Sequence

KEY_BYTES = 32  # nobody can craft a prompt that hits another's blocks


def block_key(parent: bytes, token_ids: SequenceABC[int]) -> bytes:
    """Key of a full block, given the key of the one before it (empty for the first)."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=KEY_BYTES).digest()


class PrefixKeys:
    """The keys of live sequences, as far as they were asked for."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._keys: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def first(self, sequence: Sequence, num_blocks: int) -> list[bytes]:
        """Keys of the sequence's first ``num_blocks`` blocks, all full of known tokens."""
        keys = self._keys.setdefault(sequence.sequence_id, [])
        for index in range(len(keys), num_blocks):
            start = index * self._block_size
            tokens = sequence.token_ids[start : start + self._block_size]
            keys.append(block_key(keys[-1] if keys else b"", tokens))
        return keys[:num_blocks]

    def forget(self, sequence_id: str) -> None:
        """The sequence ended."""
        self._keys.pop(sequence_id, None)
