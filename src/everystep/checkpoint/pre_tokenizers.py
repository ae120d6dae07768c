"""How byte-level BPE models split text before merging: ggml's names, as the ``tokenizers`` library writes them.

Owns the table.  The patterns are those of the models' own tokenizer.json files; SmolLM2 splits every digit off, which
not every converter keeps.  ``default`` is ggml's own mixture, for files that don't name theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]

BYTE_LEVEL: Step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY: Step = {**BYTE_LEVEL, "use_regex": False}
NFC: Step = {"type": "NFC"}


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``ignores_merges``: a whole word that is in the vocabulary is taken as it is."""

    steps: tuple[Step, ...]
    normalizer: Step | None = None
    ignores_merges: bool = False
    adds_bos: bool = False  # where the file doesn't say

    def as_json(self) -> Step:
        return self.steps[0] if len(self.steps) == 1 else {"type": "Sequence", "pretokenizers": list(self.steps)}


def _split(pattern: str) -> Step:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _words(numbers: str) -> Step:
    """Llama 3's pattern, in which families differ by how they cut numbers."""
    contractions, words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?\p{L}+"
    return _split(rf"{contractions}|{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN = _split(
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2 = PreTokenizer((BYTE_LEVEL,))
_SINGLE_DIGITS = PreTokenizer(({"type": "Digits", "individual_digits": True}, BYTE_LEVEL))
_LLAMA3 = PreTokenizer((_words(r"\p{N}{1,3}"), BYTES_ONLY), ignores_merges=True, adds_bos=True)
_QWEN2 = PreTokenizer((_words(r"\p{N}"), BYTES_ONLY), normalizer=NFC)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "pixtral": _LLAMA3,
    "tekken": PreTokenizer((_TEKKEN, BYTES_ONLY), ignores_merges=True, adds_bos=True),
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": PreTokenizer(_QWEN2.steps),
    "default": PreTokenizer(
        (_split(r"[\p{P}$+<=>^~|]+"), _split(_GPT2_PATTERN), _split(r"\p{N}+"), _split(r"[0-9][0-9][0-9]"), BYTES_ONLY)
    ),
}
