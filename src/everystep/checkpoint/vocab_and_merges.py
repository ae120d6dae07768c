"""A tokenizer.json from ``vocab.json`` and ``merges.txt``, for the tokenizer classes that wrote such files.

Owns what each class adds to the two: how it splits text and its special tokens.  As transformers builds it from the
same files; where that isn't certain the folder is refused by name, with the way out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everystep.checkpoint.fields import Fields, read_fields, read_fields_if_there
from everystep.checkpoint.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from everystep.checkpoint.tokenizer_json import Part, added_token, byte_level_parts, put_around, tokenizer_json
from everystep.errors import ModelError, UnsupportedModel

VOCAB, MERGES = "vocab.json", "merges.txt"
ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
HINT = "transformers writes one: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
END = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class TokenizerClass:
    """``special`` are the tokens by role where the files are silent."""

    pre_tokenizer: PreTokenizer
    special: Mapping[str, str]


CLASSES = {
    "GPT2Tokenizer": TokenizerClass(PRE_TOKENIZERS["gpt2"], {"bos": END, "eos": END, "unk": END}),
    "Qwen2Tokenizer": TokenizerClass(PRE_TOKENIZERS["qwen2"], {"eos": END, "unk": END, "pad": END}),
}
OF_MODEL_TYPE = {
    "gpt2": "GPT2Tokenizer",
    "opt": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
}


def tokenizer_class(folder: Path, config: Fields, side: Fields) -> TokenizerClass:
    """Of a folder without ``tokenizer.json``.  Raises :class:`ModelError` where none can be built."""
    missing = [name for name in (VOCAB, MERGES) if not (folder / name).is_file()]
    if missing:
        raise ModelError(f"{folder} has no tokenizer.json, nor {' and '.join(missing)} to build it from; {HINT}")
    named = side.text("tokenizer_class", "") or config.text("tokenizer_class", "")
    name = named.removesuffix("Fast") or OF_MODEL_TYPE.get(config.text("model_type"))
    if name not in CLASSES:
        what = f"of {named}" if named else f"of {config.text('model_type')} models"
        raise UnsupportedModel(
            f"{folder} has no tokenizer.json, and the tokenizer {what} isn't built from {VOCAB} and {MERGES} "
            f"(supported are {', '.join(CLASSES)}); {HINT}"
        )
    return CLASSES[name]


def build_tokenizer_json(folder: Path, kind: TokenizerClass, side: Fields, said: Mapping[str, Any]) -> str:
    """``said`` are the special tokens by role, as the files write them: a text, or an object with its content."""
    vocab = _read_vocab(folder / VOCAB)
    special = {**{role: text for role, text in kind.special.items() if text in vocab}, **said}
    added = _added_tokens(folder, vocab, side, special)
    ids = {part["content"]: part["id"] for part in added}
    around = [_if_added(side, role, special.get(role), ids) for role in ("bos", "eos")]
    pre = kind.pre_tokenizer
    if side.flag("add_prefix_space", False):
        *first, last = pre.steps
        pre = dataclasses.replace(pre, steps=(*first, {**last, "add_prefix_space": True}))
    parts = byte_level_parts(vocab, _read_merges(folder / MERGES), pre)
    return tokenizer_json(parts, sorted(added, key=lambda part: part["id"]), put_around(*around))


def token_text(value: Any) -> str | None:
    """A token is written as a string, or as an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _read_vocab(path: Path) -> dict[str, int]:
    vocab = read_fields(path).as_dict()
    are_numbers = all(type(token_id) is int for token_id in vocab.values())
    if not vocab or not are_numbers or set(vocab.values()) != set(range(len(vocab))):
        raise ModelError(f"{path} is corrupt: its {len(vocab)} ids aren't those from 0 on, each once")
    return vocab


def _read_merges(path: Path) -> list[str]:
    """One pair a line, the most frequent first; the first line may tell the version."""
    try:
        lines = path.read_text("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is corrupt: it is no UTF-8 ({error})") from error
    begin = 1 if lines[0].startswith("#version") else 0
    merges = [line for line in lines[begin:] if line]
    for merge in merges:
        if merge.count(" ") != 1:
            raise ModelError(f"{path} is corrupt: {merge[:60]!r} is no pair of tokens")
    return merges


def _added_tokens(folder: Path, vocab: Mapping[str, int], side: Fields, special: Mapping[str, Any]) -> list[Part]:
    """By the newer list with flags, else by the older one with ids alone; special ones by their role too."""
    listed = side.object("added_tokens_decoder").as_dict()
    older = _older_added(folder / "added_tokens.json")
    specials = {text: value for value in special.values() if (text := token_text(value)) is not None}
    specials = {**{str(token_text(value)): value for value in _more_special(folder, side)}, **specials}
    ids = {**vocab, **older, **{_text_of(entry, side): _id_of(key, side) for key, entry in listed.items()}}
    unknown = [text for text in specials if text not in ids]
    if unknown:
        raise ModelError(f"{folder} has no id for the special token {unknown[0]!r}; {HINT}")
    parts = {text: added_token(ids[text], text, special=False, normalized=True) for text in older}
    for text, value in specials.items():
        parts[text] = added_token(ids[text], text, special=True, **_flags(value))
    for entry in listed.values():
        text = _text_of(entry, side)
        parts[text] = added_token(ids[text], text, special=entry.get("special") is True, **_flags(entry))
    _check_ids(folder, vocab, {text: part["id"] for text, part in parts.items()})
    return list(parts.values())


def _older_added(path: Path) -> dict[str, int]:
    ids = read_fields_if_there(path).as_dict()
    if any(type(token_id) is not int for token_id in ids.values()):
        raise ModelError(f"{path} is corrupt: it is no object of ids by token")
    return ids


def _more_special(folder: Path, side: Fields) -> list[Any]:
    """Those without a role.  An object names them, a list doesn't."""
    found: list[Any] = []
    for fields in (read_fields_if_there(folder / "special_tokens_map.json"), side):
        for key in ("additional_special_tokens", "extra_special_tokens"):
            value = fields.raw(key) or []
            values = list(value.values()) if isinstance(value, dict) else value
            if not isinstance(values, list) or any(token_text(one) is None for one in values):
                raise fields.bad(key, "an array of tokens")
            found += values
    return found


def _text_of(entry: Any, side: Fields) -> str:
    text = token_text(entry) if isinstance(entry, dict) else None
    if text is None:
        raise side.bad("added_tokens_decoder", "an object of tokens by id")
    return text


def _id_of(key: str, side: Fields) -> int:
    if not key.isdecimal():
        raise side.bad("added_tokens_decoder", "an object of tokens by id")
    return int(key)


def _flags(value: Any) -> dict[str, bool]:
    return {name: value.get(name) is True for name in FLAGS} if isinstance(value, dict) else {}


def _check_ids(folder: Path, vocab: Mapping[str, int], ids: Mapping[str, int]) -> None:
    """The library counts ids out anew: the vocabulary's stay, the others follow it without a gap."""
    beyond = sorted((token_id, text) for text, token_id in ids.items() if text not in vocab)
    for expected, (token_id, text) in enumerate(beyond, len(vocab)):
        if token_id != expected:
            raise ModelError(f"{folder} gives the added token {text!r} id {token_id}, where {expected} comes next")
    moved = [text for text, token_id in ids.items() if vocab.get(text, token_id) != token_id]
    if moved:
        raise ModelError(f"{folder} gives the token {moved[0]!r} two ids, {vocab[moved[0]]} and {ids[moved[0]]}")


def _if_added(side: Fields, role: str, value: Any, ids: Mapping[str, int]) -> tuple[str, int] | None:
    """The token and its id where the class puts it around each text."""
    text = token_text(value)
    return (text, ids[text]) if side.flag(f"add_{role}_token", False) and text is not None else None
