"""A tokenizer.json from GGUF metadata.

Owns the mapping of ggml's tokenizer models and pre-tokenizers to those of the ``tokenizers`` library.  Pre-tokenizers
follow the models' own tokenizer.json files: SmolLM2 splits every digit off, which not every converter keeps.
"""

from __future__ import annotations

import json
from typing import Any

from everystep.architecture import TokenizerData
from everystep.errors import ModelError

CONTROL, USER_DEFINED = 3, 4  # ggml's token types

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BYTES_ONLY = {**_BYTE_LEVEL, "use_regex": False}
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(steps)}


def _split(number_pattern: str) -> dict[str, Any]:
    pattern = {"Regex": _WORDS % number_pattern}
    return _sequence({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}, _BYTES_ONLY)


PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": _sequence({"type": "Digits", "individual_digits": True}, _BYTE_LEVEL),
    "llama-bpe": _split(r"\p{N}{1,3}"),
    "qwen2": _split(r"\p{N}"),
}
SPACE = "▁"


def read_tokenizer(metadata: dict[str, Any], path: str) -> TokenizerData:
    """Raises :class:`ModelError` for a tokenizer model or pre-tokenizer that isn't known, by name."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise ModelError(f"{path} has no tokenizer")
    model = metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        parts = _byte_level_parts(metadata, path)
    elif model == "llama":
        parts = _sentencepiece_parts(metadata)
    else:
        raise ModelError(f"{path} has tokenizer model {model!r}; supported are 'gpt2' and 'llama'")
    added = _added_tokens(tokens, metadata.get("tokenizer.ggml.token_type", []))
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, **parts}

    def text_of(key: str) -> str | None:
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        return tokens[index] if index is not None and index < len(tokens) else None

    ends = (metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot"))
    return TokenizerData(
        tokenizer_json=json.dumps(whole, ensure_ascii=False),
        bos_token=text_of("bos"),
        eos_token=text_of("eos"),
        unk_token=text_of("unknown"),
        pad_token=text_of("padding"),
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", model == "llama")),
        add_eos=bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
        chat_template=metadata.get("tokenizer.chat_template"),
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
    )


def _added_tokens(tokens: list[str], types: list[int]) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": i, "content": tokens[i], **flags, "special": kind == CONTROL}
        for i, kind in enumerate(types)
        if kind in (CONTROL, USER_DEFINED)
    ]


def _bpe(tokens: list[str], merges: list[list[str]], **options: Any) -> dict[str, Any]:
    plain = {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    vocab = {token: i for i, token in enumerate(tokens)}
    return {"type": "BPE", **plain, **options, "vocab": vocab, "merges": merges}


def _byte_level_parts(metadata: dict[str, Any], path: str) -> dict[str, Any]:
    pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if pre not in PRE_TOKENIZERS:
        raise ModelError(f"{path} has pre-tokenizer {pre!r}; supported are {', '.join(PRE_TOKENIZERS)}")
    merges = [merge.split(" ", 1) for merge in metadata.get("tokenizer.ggml.merges", [])]
    return {
        "normalizer": {"type": "NFC"} if pre == "qwen2" else None,
        "pre_tokenizer": PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": _bpe(metadata["tokenizer.ggml.tokens"], merges, ignore_merges=pre == "llama-bpe"),
    }


def _sentencepiece_parts(metadata: dict[str, Any]) -> dict[str, Any]:
    """SentencePiece BPE: a pair may merge where the whole is a piece, better scores first."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.scores", [])
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": SPACE})
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(
            tokens, _merges_by_score(tokens, scores), unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True
        ),
    }


def _merges_by_score(tokens: list[str], scores: list[float]) -> list[list[str]]:
    ids = {token: i for i, token in enumerate(tokens)}
    found = []
    for piece, score in zip(tokens, scores, strict=False):
        for cut in range(1, len(piece)):
            left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
            if left is not None and right is not None:
                found.append((-score, left, right))
    found.sort()
    return [[tokens[left], tokens[right]] for _, left, right in found]
