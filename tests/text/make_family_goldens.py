"""Writes family_goldens.json: the ids that transformers' AutoTokenizer gives for the files of family_tokenizers.py.

Of one family it doesn't read the file as it is: transformers 5 takes SmolLM2's for a GPT-2's, builds that class's own
pre-tokenizer, and no longer splits digits as the model was trained to see them.  There the plain class is asked.

Needs transformers, and nothing of ours.  A chat that the family's template refuses has its words instead of ids.

    PYTHONPATH=tests python tests/text/make_family_goldens.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from text.family_tokenizers import CHATS, FAMILIES, TEXTS

TARGET = Path(__file__).with_name("family_goldens.json")
READ_AS_IT_IS = ("smollm2",)


def chat_ids(tokenizer: Any, chat: list[dict[str, Any]]) -> list[int] | str:
    try:
        return list(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False))
    except TemplateError as error:
        return str(error)


def main() -> None:
    lines = []
    for name, family in FAMILIES.items():
        with tempfile.TemporaryDirectory() as folder:
            kind = PreTrainedTokenizerFast if name in READ_AS_IT_IS else AutoTokenizer
            tokenizer = kind.from_pretrained(family.write(Path(folder)))
        has_template = "chat_template" in family.config
        golden = {
            "texts": [tokenizer(text).input_ids for text in TEXTS],
            "chats": [chat_ids(tokenizer, chat) for chat in CHATS] if has_template else [],
        }
        lines.append(f"{json.dumps(name)}: {json.dumps(golden)}")
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
