"""The parts of a ``tokenizer.json``, in the form that the ``tokenizers`` library reads.

Owns that form for BPE.  Ignorant of the files that vocabularies come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from everystep.checkpoint.pre_tokenizers import BYTE_LEVEL, PreTokenizer

Part = dict[str, Any]
Merges = Sequence[str] | Sequence[Sequence[str]]  # "left right", or the two apart


def tokenizer_json(parts: Part, added_tokens: list[Part], post_processor: Part | None) -> str:
    """``parts`` are the normalizer, the pre-tokenizer, the decoder and the model."""
    head = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens}
    return json.dumps({**head, "post_processor": post_processor, **parts}, ensure_ascii=False)


def bpe(vocab: Mapping[str, int], merges: Merges, **options: Any) -> Part:
    plain = {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return {"type": "BPE", **plain, **options, "vocab": vocab, "merges": merges}


def byte_level_parts(vocab: Mapping[str, int], merges: Merges, pre: PreTokenizer) -> Part:
    return {
        "normalizer": pre.normalizer,
        "pre_tokenizer": pre.as_json(),
        "decoder": BYTE_LEVEL,
        "model": bpe(vocab, merges, ignore_merges=pre.ignores_merges),
    }


def added_token(token_id: int, text: str, *, special: bool, **flags: bool) -> Part:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": token_id, "content": text, **plain, **flags, "special": special}


def put_around(bos: tuple[str, int] | None, eos: tuple[str, int] | None) -> Part | None:
    """The post-processor that puts these tokens around a text; others who read the file know no flag for it."""
    before, after = ([] if token is None else [_special(token[0])] for token in (bos, eos))
    if not before and not after:
        return None
    single = [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after]
    second = [*before, {"Sequence": {"id": "B", "type_id": 1}}, *after]
    used = dict(token for token in (bos, eos) if token is not None)
    special = {text: {"id": text, "ids": [token_id], "tokens": [text]} for text, token_id in used.items()}
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *second], "special_tokens": special}


def _special(text: str) -> Part:
    return {"SpecialToken": {"id": text, "type_id": 0}}
