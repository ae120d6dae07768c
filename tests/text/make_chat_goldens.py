"""Writes chat_goldens.json: the ids that transformers gives for the chats of chat_templates.py.

Needs transformers.  The tokenizer is the default model's, as the package reads it (its own goldens are
smollm2_tokenizer.json); rendering, and where control tokens are parsed, is transformers'.

    PYTHONPATH=src:tests python tests/text/make_chat_goldens.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from everystep.checkpoint import DEFAULT_MODEL, default_cache_dir, open_checkpoint
from text.chat_templates import CASES

TARGET = Path(__file__).with_name("chat_goldens.json")


def golden_ids(tokenizer: Any, case: dict[str, Any]) -> list[int]:
    rendered = tokenizer.apply_chat_template(
        case["messages"],
        tools=case.get("tools"),
        chat_template=case.get("template"),
        add_generation_prompt=case.get("add_generation_prompt", True),
        tokenize=True,
        return_dict=False,
    )
    return list(rendered)


def main() -> None:
    data = open_checkpoint(DEFAULT_MODEL, default_cache_dir()).tokenizer
    names = {"bos_token": data.bos_token, "eos_token": data.eos_token, "unk_token": data.unk_token}
    backend = Tokenizer.from_str(data.tokenizer_json)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=data.chat_template, **names)
    lines = [json.dumps({"name": case["name"], "ids": golden_ids(tokenizer, case)}) for case in CASES]
    TARGET.write_text("[\n" + ",\n".join(lines) + "\n]\n", "utf-8")


if __name__ == "__main__":
    main()
