"""The tokenizer files of a Hugging Face folder as tokenizer data.

Owns which file overrides which.  Ignorant of how text is split: ``tokenizer.json`` is passed on as it is, or built by
:mod:`everystep.checkpoint.vocab_and_merges` where only those two files are there.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

from everystep.architecture import TokenizerData
from everystep.checkpoint.fields import MAX_COUNT, Fields, read_fields, read_fields_if_there, read_text_if_there
from everystep.checkpoint.vocab_and_merges import (
    MERGES,
    ROLES,
    VOCAB,
    build_tokenizer_json,
    token_text,
    tokenizer_class,
)

TOKENIZER = "tokenizer.json"


def read_tokenizer(folder: Path, config: Fields) -> TokenizerData:
    """Raises :class:`ModelError` where there is no tokenizer that can be read, or a side file is malformed.

    What a prompt begins and ends with is left to the post-processor in ``tokenizer.json``: as transformers does since
    its release 5, which passes over ``add_bos_token`` where that file exists.
    """
    side = read_fields_if_there(folder / "tokenizer_config.json")
    generation = read_fields_if_there(folder / "generation_config.json")
    tokens = _special_tokens(folder, side)
    tokenizer_json = read_text_if_there(folder / TOKENIZER)
    if tokenizer_json is None:
        kind = tokenizer_class(folder, config, side)
        tokenizer_json = build_tokenizer_json(folder, kind, side, tokens)
        tokens = {**kind.special, **tokens}
    bos_ids = _ids(config, "bos_token_id")
    return TokenizerData(
        tokenizer_json=tokenizer_json,
        bos_token=token_text(tokens.get("bos")),
        eos_token=token_text(tokens.get("eos")),
        unk_token=token_text(tokens.get("unk")),
        pad_token=token_text(tokens.get("pad")),
        chat_template=_chat_template(folder, side),
        bos_token_id=bos_ids[0] if bos_ids else None,
        # as transformers: the generation's list, else the model's own
        eos_token_ids=_ids(generation, "eos_token_id") or _ids(config, "eos_token_id"),
        source=str(folder),
    )


def check_tokenizer(folder: Path) -> None:
    """Raise :class:`ModelError` where the folder's small files alone tell that there is no tokenizer to be had."""
    if not (folder / TOKENIZER).is_file():
        side = read_fields_if_there(folder / "tokenizer_config.json")
        tokenizer_class(folder, read_fields(folder / "config.json"), side)


def has_tokenizer(names: Container[str]) -> bool:
    """Whether files of these names can be a tokenizer's."""
    return TOKENIZER in names or (VOCAB in names and MERGES in names)


def _special_tokens(folder: Path, side: Fields) -> dict[str, Any]:
    """By role, as they are written; ``None`` where a file says that there is none."""
    special = read_fields_if_there(folder / "special_tokens_map.json")
    keys = {role: f"{role}_token" for role in ROLES}
    said = {role: key for role, key in keys.items() if side.has(key) or special.has(key)}
    # a malformed one of the first file gives way to the second's
    return {
        role: side.raw(key) if token_text(side.raw(key)) is not None else special.raw(key) for role, key in said.items()
    }


def _chat_template(folder: Path, side: Fields) -> str | None:
    """The template file wins over the config's; of several named ones the default is taken."""
    text = read_text_if_there(folder / "chat_template.jinja")
    if text is not None:
        return text
    template = side.raw("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise side.bad("chat_template", "a text, or a list of named ones")
    return template


def _ids(fields: Fields, key: str) -> tuple[int, ...]:
    """One id or several; -1 is an old way to write that there is none."""
    value = fields.raw(key)
    values = value if isinstance(value, list) else [] if value in (None, -1) else [value]
    if any(type(one) is not int or not 0 <= one <= MAX_COUNT for one in values):
        raise fields.bad(key, "a token id or a list of them")
    return tuple(values)
