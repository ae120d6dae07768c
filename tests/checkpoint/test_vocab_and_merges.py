"""Folders without a tokenizer.json: what is built from vocab.json and merges.txt, against transformers' ids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from everystep.architecture import TokenizerData
from everystep.checkpoint.fields import read_fields
from everystep.checkpoint.hf_tokenizer import read_tokenizer
from everystep.errors import ModelError, UnsupportedModel

FOLDERS = Path(__file__).parents[1] / "golden" / "vocab_and_merges"
NAMES = ("opt", "gpt2", "prefix_space", "qwen2")
WAY_OUT = r"; transformers writes one: AutoTokenizer.from_pretrained\(folder\).save_pretrained\(folder\)$"


def read(folder: Path) -> TokenizerData:
    return read_tokenizer(folder, read_fields(folder / "config.json"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the OPT folder, to be changed."""
    return shutil.copytree(FOLDERS / "opt", tmp_path / "opt")


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file; ``...`` removes one."""
    content = json.loads(path.read_text("utf-8")) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}), "utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_every_text_has_the_ids_that_transformers_gives_it(name: str) -> None:
    golden = json.loads((FOLDERS / name / "golden.json").read_text("utf-8"))
    backend = Backend.from_str(read(FOLDERS / name).tokenizer_json)
    for case in golden["texts"]:
        assert backend.encode(case["text"]).ids == case["ids"], case["text"]


@pytest.mark.parametrize("name", NAMES)
def test_the_special_tokens_are_those_of_transformers(name: str) -> None:
    golden = json.loads((FOLDERS / name / "golden.json").read_text("utf-8"))
    added = Backend.from_str(read(FOLDERS / name).tokenizer_json).get_added_tokens_decoder()
    assert sorted(i for i, token in added.items() if token.special) == golden["special"]


def test_opt_s_prompts_begin_with_its_end_token_and_end_without_it() -> None:
    data = read(FOLDERS / "opt")
    ids = Backend.from_str(data.tokenizer_json).encode("A river").ids
    assert (ids[0], ids.count(2)) == (2, 1)
    assert (data.bos_token, data.eos_token, data.unk_token, data.pad_token) == ("</s>", "</s>", "</s>", "<pad>")
    assert (data.bos_token_id, data.eos_token_ids, data.add_bos) == (2, (2,), None)  # the post-processor does it


def test_a_class_s_own_special_tokens_hold_where_the_files_are_silent() -> None:
    data = read(FOLDERS / "gpt2")
    assert (data.bos_token, data.eos_token, data.pad_token) == ("<|endoftext|>", "<|endoftext|>", None)
    qwen2 = read(FOLDERS / "qwen2")
    assert (qwen2.bos_token, qwen2.eos_token, qwen2.pad_token) == (None, "<|im_end|>", "<|endoftext|>")


def test_the_class_s_defaults_add_no_token_to_a_vocabulary_without_them(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    (folder / "special_tokens_map.json").unlink()
    backend = Backend.from_str(read(folder).tokenizer_json)
    assert backend.get_added_tokens_decoder() == {}
    assert backend.get_vocab_size() == len(json.loads((folder / "vocab.json").read_text("utf-8")))


def test_a_tokenizer_json_wins(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("as it is")
    assert read(folder).tokenizer_json == "as it is"


def test_a_merges_file_may_do_without_its_version_and_with_other_line_ends(folder: Path) -> None:
    before = read(folder).tokenizer_json
    lines = (folder / "merges.txt").read_text("utf-8").split("\n")
    assert lines[0].startswith("#version")
    (folder / "merges.txt").write_bytes("\r\n".join(lines[1:]).encode())
    assert read(folder).tokenizer_json == before


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"tokenizer_class": "GPTNeoXTokenizerFast"},
            r"tokenizer of GPTNeoXTokenizerFast isn't built .*GPT2Tokenizer,",
        ),
        ({"tokenizer_class": "RobertaTokenizer"}, "tokenizer of RobertaTokenizer isn't built"),
        ({"tokenizer_class": ...}, "tokenizer of gpt_neox models isn't built"),
    ],
)
def test_another_class_s_tokenizer_is_refused_by_name_with_the_way_out(
    values: dict[str, Any], words: str, folder: Path
) -> None:
    change(folder / "config.json", model_type="gpt_neox")
    change(folder / "tokenizer_config.json", **values)
    with pytest.raises(UnsupportedModel, match=words + ".*" + WAY_OUT) as caught:
        read(folder)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_one_file_of_the_two_is_too_few(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"has no tokenizer.json, nor {name} to build it from" + WAY_OUT):
        read(folder)


DAMAGE: dict[str, tuple[str, str | bytes, str]] = {
    "ids with a hole": ("vocab.json", '{"a": 0, "b": 2}', "its 2 ids aren't those from 0 on"),
    "an id twice": ("vocab.json", '{"a": 0, "b": 0}', "its 2 ids aren't"),
    "ids that are none": ("vocab.json", '{"a": [0]}', "its 1 ids aren't"),
    "no vocabulary": ("vocab.json", "{}", "its 0 ids aren't"),
    "a vocabulary that is none": ("vocab.json", "[]", "isn't a JSON object"),
    "a merge of three": ("merges.txt", "#version: 0.2\na b c\n", "'a b c' is no pair of tokens"),
    "a merge of bytes": ("merges.txt", b"\xff\xfe a\n", "merges.txt is corrupt: it is no UTF-8"),
    "added tokens with a gap": ("added_tokens.json", '{"[x]": 999}', r"added token '\[x\]' id 999, where 340 comes"),
    "an added token's second id": ("added_tokens.json", '{"</s>": 3}', "the token '</s>' two ids, 2 and 3"),
    "added tokens without an id": (
        "added_tokens.json",
        '{"[x]": "y"}',
        "added_tokens.json is corrupt: it is no object",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_is_named_in_one_line(what: str, folder: Path) -> None:
    name, content, words = DAMAGE[what]
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ModelError, match=words) as caught:
        read(folder)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pad_token": "[PAD]"}, r"has no id for the special token '\[PAD\]'" + WAY_OUT),
        ({"added_tokens_decoder": {"340": "[x]"}}, "added_tokens_decoder is .*, not an object of tokens by id"),
        ({"added_tokens_decoder": {"x": {"content": "[x]"}}}, "added_tokens_decoder is .*, not an object of tokens"),
        ({"additional_special_tokens": "</s>"}, "additional_special_tokens is '</s>', not an array of tokens"),
        ({"add_bos_token": "yes"}, "add_bos_token is 'yes', not true or false"),
    ],
)
def test_a_side_file_that_can_t_be_meant_is_refused(values: dict[str, Any], words: str, folder: Path) -> None:
    change(folder / "tokenizer_config.json", **values)
    with pytest.raises(ModelError, match=words):
        read(folder)
