"""What a core is built with."""

import shutil
from pathlib import Path

import pytest

from everystep.checkpoint import open_checkpoint
from everystep.config import Settings
from everystep.engine.bootstrap import build_core, check_model
from everystep.errors import ModelError, UnsupportedOption
from everystep.runner.fake import FakeRunner

TINY = Path(__file__).parent.parent / "golden" / "tiny" / "llama"  # made for 512 tokens


class ShortSighted(FakeRunner):
    """Computes texts of 100 tokens alike in any company, longer ones not."""

    max_context_len = 100


class OnADevice(FakeRunner):
    """Has memory of its own, for ten blocks and a bit."""

    def free_cache_bytes(self):
        return 10 * self.kv_block_bytes + 1


def build(tmp_path, runner, **settings):
    settings = Settings(model=str(TINY), cache_dir=tmp_path, **settings)
    return build_core(settings, now_s=lambda: 0.0, runner=runner)


def test_a_runner_may_bound_the_context_below_what_the_model_was_made_for(tmp_path):
    _, info = build(tmp_path, ShortSighted(vocab_size=384))
    assert info.max_model_len == 100
    _, info = build(tmp_path, FakeRunner(vocab_size=384))
    assert info.max_model_len == 512


def test_a_context_over_the_runners_bound_is_refused_with_the_numbers(tmp_path):
    with pytest.raises(UnsupportedOption, match="max_model_len=200 is over the 100 tokens"):
        build(tmp_path, ShortSighted(vocab_size=384), max_model_len=200)


def test_a_model_without_a_tokenizer_is_refused_before_anything_is_built(tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    checkpoint = open_checkpoint(str(folder), tmp_path)
    with pytest.raises(ModelError, match=r"has no tokenizer.json"):
        check_model(Settings(runner="openvino"), checkpoint)


def test_a_runner_with_memory_of_its_own_says_how_large_the_cache_is(tmp_path):
    _, info = build(tmp_path, OnADevice(vocab_size=384))
    assert info.num_blocks == 10
