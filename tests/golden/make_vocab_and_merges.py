"""Make ``vocab_and_merges/``: folders that have no ``tokenizer.json``, and the ids that transformers gets from them.

Owns the files and their golden.json.  Needs transformers, so its output is committed, and this is run by hand:

    python tests/golden/make_vocab_and_merges.py

The vocabulary is trained here; what stands beside it has the form of the hub's own: OPT's objects for special tokens,
GPT-2's silence, Qwen2's list of added tokens by id, and the older list of them (``added_tokens.json``).
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from golden_texts import TOKENIZER_TEXTS, TRAINING_TEXT
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer

HERE = Path(__file__).parent
OUT = HERE / "vocab_and_merges"
VOCAB_SIZE = 340
MORE_TEXTS = (
    "</s>a</s> b<pad>c<s>d<unk>",
    "x<|endoftext|>y <|im_start|>user\n12345<|im_end|> 🏳️‍🌈 café café",
    "  two   spaces\t\ttabs\r\n\n12 345 won't WON'T 강물은 바다로 [more] <special>z",
)


def token(text: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    return {"content": text, **flags, "__type": "AddedToken"}


def listed(*texts: str, special: bool = True) -> list[dict[str, Any]]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return [{"content": text, **flags, "special": special} for text in texts]


SPACED = {**listed("[more]")[0], "lstrip": True, "rstrip": True}
QWEN2_ADDED = [*listed("<|endoftext|>", "<|im_start|>", "<|im_end|>"), *listed("<tool>", special=False)]
END = "<|endoftext|>"
OPT = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}

# By name: tokens at the front of the vocabulary, config.json, and the side files.
FOLDERS: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
    "opt": (
        ["<s>", "<pad>", "</s>", "<unk>"],
        {"model_type": "opt", "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1},
        {
            "tokenizer_config.json": {
                "errors": "replace",
                **{role: token(text) for role, text in OPT.items()},
                "add_prefix_space": False,
                "add_bos_token": True,
                "tokenizer_class": "GPT2Tokenizer",
            },
            "special_tokens_map.json": {role: token(text) for role, text in OPT.items()},
        },
    ),
    "gpt2": ([END], {"model_type": "gpt2", "bos_token_id": 0, "eos_token_id": 0}, {}),
    "prefix_space": (
        ["<|endoftext|>"],
        {"model_type": "gpt2", "eos_token_id": 0},
        {
            "tokenizer_config.json": {"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True},
            "special_tokens_map.json": {
                "eos_token": END,
                "pad_token": "<pad>",
                "additional_special_tokens": ["<special>"],
            },
            "added_tokens.json": {"[more]": VOCAB_SIZE, "<pad>": VOCAB_SIZE + 1, "<special>": VOCAB_SIZE + 2},
        },
    ),
    "qwen2": (
        [],
        {"model_type": "qwen2", "eos_token_id": VOCAB_SIZE + 2},
        {
            "tokenizer_config.json": {
                "add_prefix_space": False,
                "added_tokens_decoder": {str(VOCAB_SIZE + i): entry for i, entry in enumerate([*QWEN2_ADDED, SPACED])},
                "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
                "bos_token": None,
                "eos_token": "<|im_end|>",
                "pad_token": END,
                "unk_token": None,
                "tokenizer_class": "Qwen2Tokenizer",
            },
        },
    ),
}


def main() -> None:
    shutil.rmtree(OUT, ignore_errors=True)
    for name, (front, config, sides) in FOLDERS.items():
        folder = OUT / name
        folder.mkdir(parents=True)
        trainer = ByteLevelBPETokenizer()
        trainer.train_from_iterator([TRAINING_TEXT], vocab_size=VOCAB_SIZE, special_tokens=front, show_progress=False)
        trainer.save_model(str(folder))
        for file, content in {"config.json": config, **sides}.items():
            write(folder / file, content)
        write(folder / "golden.json", golden(folder))


def golden(folder: Path) -> dict[str, Any]:
    """From a copy: transformers would look for more on its way."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        tokenizer = AutoTokenizer.from_pretrained(copy, local_files_only=True)
    texts = [*TOKENIZER_TEXTS, *MORE_TEXTS]
    marked = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return {
        "class": type(tokenizer).__name__,
        "special": sorted(marked | set(tokenizer.all_special_ids)),
        "texts": [{"text": text, "ids": tokenizer(text)["input_ids"]} for text in texts],
    }


def write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
