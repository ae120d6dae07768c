"""A model of facebook/opt-125m's exact shape, made on the spot: random weights, nothing to download, no torch.

    python benchmarks/models/opt_125m_shape.py FOLDER [--seed 0]

Time per token doesn't depend on what the weights say, so the shape is enough for a benchmark.  Writes a Hugging Face
folder: ``config.json``, ``model.safetensors`` (f32, 501 MB), ``tokenizer.json``, ``tokenizer_config.json``,
``generation_config.json``.  The tokenizer is a byte-level BPE of the right size whose pieces are runs of one to four
letters, so that nearly every token shows as text.  A folder that is there already, of this seed, is left as it is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import string
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

HIDDEN, LAYERS, HEADS, FFN, VOCAB, POSITIONS = 768, 12, 12, 3072, 50272, 2048
POSITION_OFFSET = 2  # OPT's table of positions begins with two rows that no position uses
STD = 0.02  # as transformers initialises OPT
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]  # ids 0 to 3, as in OPT
PAD, EOS = 1, 2

CONFIG = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "attention_dropout": 0.0,
    "bos_token_id": EOS,  # OPT begins texts with the token that ends them
    "do_layer_norm_before": True,
    "dropout": 0.1,
    "dtype": "float32",
    "enable_bias": True,
    "eos_token_id": EOS,
    "ffn_dim": FFN,
    "hidden_size": HIDDEN,
    "init_std": STD,
    "layer_norm_elementwise_affine": True,
    "layerdrop": 0.0,
    "max_position_embeddings": POSITIONS,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "pad_token_id": PAD,
    "tie_word_embeddings": True,
    "use_cache": True,
    "vocab_size": VOCAB,
    "word_embed_proj_dim": HIDDEN,
    "_remove_final_layer_norm": False,
}


def shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every array, in the order in which it is drawn and written.  The head is tied to the embedding."""
    base = "model.decoder."
    yield f"{base}embed_tokens.weight", (VOCAB, HIDDEN)
    yield f"{base}embed_positions.weight", (POSITIONS + POSITION_OFFSET, HIDDEN)
    yield from _pair(f"{base}final_layer_norm", (HIDDEN,))
    for layer in range(LAYERS):
        within = f"{base}layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _pair(f"{within}self_attn.{name}", (HIDDEN, HIDDEN))
        yield from _pair(f"{within}self_attn_layer_norm", (HIDDEN,))
        yield from _pair(f"{within}fc1", (FFN, HIDDEN))
        yield from _pair(f"{within}fc2", (HIDDEN, FFN))
        yield from _pair(f"{within}final_layer_norm", (HIDDEN,))


def _pair(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """As a model before training: norms do nothing, biases are zero, the rest is normal."""
    if name.endswith("layer_norm.weight"):
        return np.ones(shape, np.float32)
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    return rng.standard_normal(shape, np.float32) * np.float32(STD)


def write_safetensors(path: Path, seed: int) -> None:
    """The format: length of the header, the header as JSON, then the arrays one behind the other."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes():
        begin, end = end, end + 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for name, shape in shapes():
            file.write(draw(rng, name, shape).tobytes())


def byte_letters() -> list[str]:
    """The 256 letters that stand for bytes in a byte-level BPE: printable ones for themselves, others moved up."""
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = itertools.count(256)
    return [chr(byte) if byte in own else chr(next(moved)) for byte in range(256)]


def runs() -> Iterator[tuple[str, str]]:
    """Merges: each run of two to four small letters is a shorter run and one letter more."""
    letters = string.ascii_lowercase
    for length in (2, 3, 4):
        for parts in itertools.product(letters, repeat=length):
            yield "".join(parts[:-1]), parts[-1]


def tokenizer() -> dict[str, object]:
    """``tokenizer.json`` with as many tokens as the model has rows."""
    pieces = [*SPECIAL, *byte_letters()]
    merges = list(itertools.islice(runs(), VOCAB - len(pieces)))
    vocab = {piece: number for number, piece in enumerate([*pieces, *map("".join, merges)])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": piece, **flags} for number, piece in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [list(pair) for pair in merges]},
    }  # fmt: skip


def make(folder: Path, seed: int) -> bool:
    """Whether it had to be made.  ``config.json`` names the seed and is written last: with it the folder is whole."""
    config = {**CONFIG, "everystep_seed": seed}
    known = folder / "config.json"
    if known.is_file() and json.loads(known.read_text()) == config:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    known.unlink(missing_ok=True)
    write_safetensors(folder / "model.safetensors", seed)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False), encoding="utf-8")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "</s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "pad_token": "<pad>", "unk_token": "<unk>"}))
    special = {"bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": PAD}
    (folder / "generation_config.json").write_text(json.dumps(special))
    known.write_text(json.dumps(config, indent=1))
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    words = "made" if make(given.folder, given.seed) else "is there already"
    print(f"{given.folder} {words}")


if __name__ == "__main__":
    main()
