"""GGUF files that lie, are cut or are garbled: one line that names the file, whatever the bytes are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint.made_gguf import HEADS, Recipe, write_model
from everystep.checkpoint import open_checkpoint
from everystep.errors import ModelError
from everystep.text import Tokenizer

NUM_TENSORS, NUM_KEYS, FIRST_KEY = 8, 16, 24  # where these numbers stand in the file
DATA_START = 4096  # beyond the header of the made model


def use(path: Path, cache_dir: Path) -> None:
    """All that a server does with a file before it answers."""
    checkpoint = open_checkpoint(str(path), cache_dir)
    Tokenizer(checkpoint.tokenizer)
    for name in checkpoint.weights.names():
        checkpoint.weights.load(name)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_model(tmp_path_factory.mktemp("whole") / "m.gguf").path.read_bytes()


def number_at(place: int, value: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:place] + value.to_bytes(8, "little") + data[place + 8 :]


def instead(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def damage(data: bytes) -> bytes:
        assert old in data
        assert len(old) == len(new)
        return data.replace(old, new)

    return damage


def of_tensor(name: bytes, place: int, packed: bytes) -> Callable[[bytes], bytes]:
    """``place`` counts from the tensor's number of dimensions (two here): 4 the first, 20 the type, 24 the offset."""

    def damage(data: bytes) -> bytes:
        begin = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + place
        return data[:begin] + packed + data[begin + len(packed) :]

    return damage


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


K, Q = b"blk.0.attn_k.weight", b"blk.0.attn_q.weight"
ARCHITECTURE = b"general.architecture" + u32(8)
TOKENS = b"tokenizer.ggml.tokens" + u32(9)
DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "version 99": (lambda data: data[:4] + u32(99) + data[8:], "GGUF version 99"),
    "2^63 tensors": (number_at(NUM_TENSORS, 2**63), f"claims {2**63} entries"),
    "2^63 keys": (number_at(NUM_KEYS, 2**63), f"claims {2**63} entries"),
    "as many keys as may be": (number_at(NUM_KEYS, 10**8), "corrupt or cut short within its header"),
    "as many tensors as may be": (number_at(NUM_TENSORS, 10**8), "corrupt or cut short within its header"),
    "a key of 2^62 characters": (number_at(FIRST_KEY, 2**62), "corrupt or cut short within its header"),
    "a key of 2^64 - 1 characters": (number_at(FIRST_KEY, 2**64 - 1), "corrupt or cut short within its header"),
    "a text of 2^62 characters": (
        lambda data: data.replace(ARCHITECTURE + u64(5), ARCHITECTURE + u64(2**62)),
        "corrupt or cut short within its header",
    ),
    "a key that is no UTF-8": (instead(b"general.", b"gener\xffl."), "corrupt or cut short within its header"),
    "a value of no known type": (instead(ARCHITECTURE, ARCHITECTURE[:-4] + u32(77)), "metadata of unknown type 77"),
    "an array of arrays": (instead(TOKENS + u32(8), TOKENS + u32(9)), "array of unsupported type 9"),
    "an array longer than the file": (
        lambda data: data.replace(TOKENS + u32(8) + u64(64), TOKENS + u32(6) + u64(10**8)),
        "corrupt or cut short within its header",
    ),
    "one key twice": (instead(b"bos_token_id", b"eos_token_id"), "'tokenizer.ggml.eos_token_id' stands in it twice"),
    "one tensor twice": (instead(K, Q), "'blk.0.attn_q.weight' stands in it twice"),
    "2^32 - 1 dimensions": (of_tensor(K, 0, u32(2**32 - 1)), "has 4294967295 dimensions"),
    "a dimension of 0": (of_tensor(K, 4, u64(0)), r"shape \(128, 0\) aren't whole blocks"),
    "a dimension of 2^63": (of_tensor(K, 4, u64(2**63)), "cut short: tensor 'blk.0.attn_k.weight'"),
    "dimensions whose product is 0 in 64 bits": (of_tensor(K, 4, u64(2**32) * 2), "cut short: tensor"),
    "no known quantisation": (of_tensor(K, 20, u32(99)), "quantisation type 99"),
    "an offset of 2^63": (of_tensor(K, 24, u64(2**63)), "cut short: tensor"),
    "an offset of 2^64 - 1": (of_tensor(K, 24, u64(2**64 - 1)), "cut short: tensor"),
    "two tensors in one place": (of_tensor(K, 24, u64(0)), "'blk.0.attn_k.weight' overlap"),
    "no tokens": (instead(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz"), "has no tokenizer"),
    "an end of text that is no token": (
        lambda data: data.replace(b"eos_token_id" + u32(4) + u32(2), b"eos_token_id" + u32(4) + u32(64)),
        "eos_token_id is 64 of 64 tokens",
    ),
    "more types than tokens": (
        lambda data: data.replace(b"token_type" + u32(9) + u32(5) + u64(64), b"token_type" + u32(9) + u32(5) + u64(63)),
        "corrupt",
    ),
    "data that ends early": (lambda data: data[:-1], "cut short"),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_a_file_that_lies_is_refused_in_one_line_that_names_it(what: str, whole: bytes, tmp_path: Path) -> None:
    damage, words = DAMAGE[what]
    damaged = damage(whole)
    assert damaged != whole
    path = tmp_path / "m.gguf"
    path.write_bytes(damaged)
    with pytest.raises(ModelError, match=words) as caught:
        use(path, tmp_path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 600


ODD = {
    "a text where a number goes": ({"context_length": "long"}, "llama.context_length is 'long', not a whole number"),
    "true where a number goes": ({"context_length": True}, "llama.context_length is True"),
    "a context beyond any": ({"context_length": 2**32 - 1}, "llama.context_length is 4294967295"),
    "no heads": ({"attention.head_count": 0}, "head_count is 0"),
    "no rotary base": ({"rope.freq_base": 0.0}, "rope.freq_base is 0.0, not a number above 0"),
    "a rotary base that is no number": ({"rope.freq_base": float("nan")}, "rope.freq_base is nan"),
    "a norm that roots what is negative": ({"attention.layer_norm_rms_epsilon": -1.0}, "epsilon is -1.0"),
    "a rotary scaling by nothing": ({"rope.scaling.type": "linear", "rope.scaling.factor": 0.0}, "factor is 0.0"),
    "more heads than numbers": ({"attention.head_count": 10**6, "attention.head_count_kv": 10**6}, "key_length"),
    "an architecture of a megabyte": ({"rope.scaling.type": "x" * 2**20}, "scales its rotary embedding by 'xxx"),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_hyperparameters_that_can_t_be_are_refused_by_name(what: str, tmp_path: Path) -> None:
    metadata, words = ODD[what]
    made = write_model(tmp_path / "m.gguf", Recipe(metadata=metadata))
    with pytest.raises(ModelError, match=words) as caught:
        use(made.path, tmp_path)
    assert len(caught.value.message) < 600


def test_the_whole_model_opens(whole: bytes, tmp_path: Path) -> None:
    """So that what is refused above is refused for its damage."""
    (tmp_path / "m.gguf").write_bytes(whole)
    use(tmp_path / "m.gguf", tmp_path)
    assert open_checkpoint(str(tmp_path / "m.gguf"), tmp_path).architecture.num_heads == HEADS


edits = st.tuples(
    st.sampled_from(["flip", "write", "remove", "insert"]),
    st.integers(0, DATA_START),
    st.one_of(
        st.binary(min_size=1, max_size=16),
        st.sampled_from([u32(0), u32(2**32 - 1), u64(0), u64(2**62), u64(2**63), u64(2**64 - 1)]),
    ),
)


def edited(data: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
    changed = bytearray(data)
    for kind, place, new in changes:
        match kind:
            case "flip":
                changed[place] ^= new[0]
            case "write":
                changed[place : place + len(new)] = new
            case "remove":
                del changed[place : place + len(new)]
            case "insert":
                changed[place:place] = new
    return bytes(changed)


def refusal(path: Path, cache_dir: Path) -> str | None:
    try:
        use(path, cache_dir)
    except ModelError as error:
        return error.message
    return None


def fuzz(whole: bytes, tmp_path: Path, max_examples: int) -> None:
    path, outcomes = tmp_path / "m.gguf", {"refused": 0, "opened": 0}

    @settings(max_examples=max_examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(edits, min_size=1, max_size=4))
    def each(changes: list[tuple[str, int, bytes]]) -> None:
        path.write_bytes(edited(whole, changes))
        words = refusal(path, tmp_path)
        assert words is None or (str(path) in words and "\n" not in words)
        outcomes["opened" if words is None else "refused"] += 1

    each()
    assert min(outcomes.values()) > max_examples // 50, outcomes


def test_any_change_to_the_bytes_is_refused_in_one_line_or_harmless(whole: bytes, tmp_path: Path) -> None:
    fuzz(whole, tmp_path, 200)


@pytest.mark.slow
def test_any_change_to_the_bytes_is_refused_in_one_line_or_harmless_many_times(whole: bytes, tmp_path: Path) -> None:
    fuzz(whole, tmp_path, 3000)
