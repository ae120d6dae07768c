"""One part of a ``tokenizer.json`` (a decoder, a pre-tokenizer) as the ``tokenizers`` library's own object.

Owns the empty tokenizer around it: the library reads parts only as parts of a whole.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer as Backend

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")


def build_part(name: str, state: dict[str, Any]) -> Any:
    """``state`` is the part's object in a ``tokenizer.json``."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    whole: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": model, **dict.fromkeys(PARTS)}
    return getattr(Backend.from_str(json.dumps(whole | {name: state})), name)
