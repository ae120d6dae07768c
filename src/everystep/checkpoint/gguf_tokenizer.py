"""A tokenizer.json from GGUF metadata.

Owns the mapping of ggml's two tokenizer models to the ``tokenizers`` library's BPE.  Ignorant of tensors.
"""

from __future__ import annotations

from typing import Any

from everystep.architecture import TokenizerData
from everystep.checkpoint.fields import Fields, shown
from everystep.checkpoint.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from everystep.checkpoint.tokenizer_json import added_token, bpe, byte_level_parts, put_around, tokenizer_json
from everystep.errors import ModelError, UnsupportedModel

KEY = "tokenizer.ggml."
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # ggml's token types
SPACE = "▁"


def read_tokenizer(metadata: Fields) -> TokenizerData:
    """Raises :class:`ModelError` for a tokenizer model or pre-tokenizer that isn't known, by name."""
    tokens = metadata.array(f"{KEY}tokens", str)
    if not tokens:
        raise ModelError(f"{metadata.source} has no tokenizer")
    model = metadata.text(f"{KEY}model")
    if model == "gpt2":
        pre = _pre_tokenizer(metadata)
        merges = metadata.array(f"{KEY}merges", str)
        parts, adds_bos = byte_level_parts(_ids(tokens), merges, pre), pre.adds_bos
    elif model == "llama":
        parts, adds_bos = _sentencepiece_parts(metadata, tokens), True
    else:
        raise UnsupportedModel(
            f"{metadata.source} has tokenizer model {shown(model)}; supported are 'gpt2' and 'llama'"
        )
    added = _added_tokens(tokens, metadata.array(f"{KEY}token_type", int), metadata.source)
    ids = {role: _id_of(metadata, role, len(tokens)) for role in ("bos", "eos", "eot", "unknown", "padding")}
    texts = {role: None if index is None else tokens[index] for role, index in ids.items()}
    add_bos = metadata.flag(f"{KEY}add_bos_token", adds_bos)
    add_eos = metadata.flag(f"{KEY}add_eos_token", False)
    around = put_around(_token(tokens, ids["bos"], add_bos), _token(tokens, ids["eos"], add_eos))
    return TokenizerData(
        tokenizer_json=tokenizer_json(parts, added, around),
        bos_token=texts["bos"],
        eos_token=texts["eos"],
        unk_token=texts["unknown"],
        pad_token=texts["padding"],
        add_bos=add_bos,
        add_eos=add_eos,
        chat_template=metadata.text("tokenizer.chat_template", "") or None,
        bos_token_id=ids["bos"],
        eos_token_ids=tuple(dict.fromkeys(one for one in (ids["eos"], ids["eot"]) if one is not None)),
        source=metadata.source,
    )


def _id_of(metadata: Fields, role: str, num_tokens: int) -> int | None:
    key = f"{KEY}{role}_token_id"
    if metadata.raw(key) is None:
        return None
    index = metadata.count(key, at_least=0)
    if index >= num_tokens:
        raise ModelError(f"{metadata.source} is corrupt: {key} is {index} of {num_tokens} tokens")
    return index


def _added_tokens(tokens: list[str], types: list[int], source: str) -> list[dict[str, Any]]:
    if types and len(types) != len(tokens):
        raise ModelError(f"{source} is corrupt: {len(types)} token types for {len(tokens)} tokens")
    return [
        added_token(i, tokens[i], special=kind != USER_DEFINED)
        for i, kind in enumerate(types)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]


def _token(tokens: list[str], index: int | None, is_added: bool) -> tuple[str, int] | None:
    return (tokens[index], index) if is_added and index is not None else None


def _ids(tokens: list[str]) -> dict[str, int]:
    return {token: i for i, token in enumerate(tokens)}


def _pre_tokenizer(metadata: Fields) -> PreTokenizer:
    name = metadata.text(f"{KEY}pre", "default")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModel(
            f"{metadata.source} has pre-tokenizer {shown(name)}; supported are {', '.join(PRE_TOKENIZERS)}"
        )
    return PRE_TOKENIZERS[name]


def _sentencepiece_parts(metadata: Fields, tokens: list[str]) -> dict[str, Any]:
    """SentencePiece BPE: a pair may merge where the whole is a piece, better scores first."""
    scores = metadata.array(f"{KEY}scores", float)
    if len(scores) != len(tokens):
        raise ModelError(f"{metadata.source} is corrupt: {len(scores)} scores for {len(tokens)} tokens")
    normalizers: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if metadata.flag(f"{KEY}add_space_prefix", True):
        normalizers.insert(0, {"type": "Prepend", "prepend": SPACE})
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = _id_of(metadata, "unknown", len(tokens)) or 0
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": bpe(
            _ids(tokens), _merges_by_score(tokens, scores), unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True
        ),
    }


def _merges_by_score(tokens: list[str], scores: list[float]) -> list[list[str]]:
    ids = _ids(tokens)
    found = []
    for piece, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(piece)):
            left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
            if left is not None and right is not None:
                found.append((-score, left, right))
    found.sort()
    return [[tokens[left], tokens[right]] for _, left, right in found]
