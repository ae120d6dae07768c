"""The tokenizer files of a Hugging Face folder as tokenizer data.

Owns which file overrides which.  Ignorant of how text is split: ``tokenizer.json`` is passed on as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everystep.architecture import TokenizerData
from everystep.checkpoint.fields import Fields, read_fields_if_there
from everystep.errors import ModelError


def read_tokenizer(folder: Path, config: Fields) -> TokenizerData:
    """Raises :class:`ModelError` where ``tokenizer.json`` is absent or a side file is malformed.

    What a prompt begins and ends with is left to the post-processor in ``tokenizer.json``: as transformers does since
    its release 5, which passes over ``add_bos_token`` where that file exists.
    """
    tokenizer_json = _read_text(folder / "tokenizer.json")
    if tokenizer_json is None:
        raise ModelError(f"{folder} has no tokenizer.json")
    side = read_fields_if_there(folder / "tokenizer_config.json")
    special = read_fields_if_there(folder / "special_tokens_map.json")
    generation = read_fields_if_there(folder / "generation_config.json")

    def token(role: str) -> str | None:
        return _token_text(side.raw(f"{role}_token")) or _token_text(special.raw(f"{role}_token"))

    bos_ids = _ids(config.raw("bos_token_id"))
    return TokenizerData(
        tokenizer_json=tokenizer_json,
        bos_token=token("bos"),
        eos_token=token("eos"),
        unk_token=token("unk"),
        pad_token=token("pad"),
        chat_template=_chat_template(folder, side),
        bos_token_id=bos_ids[0] if bos_ids else None,
        # as transformers: the generation's list, else the model's own
        eos_token_ids=_ids(generation.raw("eos_token_id")) or _ids(config.raw("eos_token_id")),
    )


def _read_text(path: Path) -> str | None:
    """``None`` where there is no such file."""
    if not path.is_file():
        return None
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is corrupt: it is no UTF-8 ({error})") from error


def _token_text(value: Any) -> str | None:
    """A token is written as a string, or as an object with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _chat_template(folder: Path, side: Fields) -> str | None:
    """The template file wins over the config's; of several named ones the default is taken."""
    text = _read_text(folder / "chat_template.jinja")
    if text is not None:
        return text
    template = side.raw("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _ids(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(one for one in values if isinstance(one, int) and not isinstance(one, bool))
