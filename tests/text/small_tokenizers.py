"""Tokenizers of a few hundred tokens, made by the ``tokenizers`` library: one of each kind that models have.

Owns their vocabularies and :class:`TokenizerData`.  The library itself, on the same data, is the tests' oracle.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from everystep.architecture import TokenizerData

CORPUS = [
    "the quick brown fox jumps over the lazy dog and the other dogs, then rests for the night",
    "def add(a, b):\n    return a + b\n\n\nfor i in range(10):\n    print(add(i, i))",
    "안녕하세요 세계, 안녕히 가세요. مرحبا بالعالم. 🙂🙂 👩‍👩‍👧 naïve café",
    "one two three one two three one two three hello hello hello world world world",
]
CONTROLS = ["<unk>", "<s>", "</s>", "<|user|>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "▁"
CHATML = (
    "{% for message in messages %}{{ '<s>' + message['role'] + '\n' + message['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


def data_of(tokenizer: Tokenizer | str, **settings: Any) -> TokenizerData:
    whole = tokenizer if isinstance(tokenizer, str) else tokenizer.to_str()
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return TokenizerData(tokenizer_json=whole, **{**names, **settings})


def byte_level() -> Tokenizer:
    """As GPT-2, Llama 3, Qwen and SmolLM have it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=CONTROLS, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("한 글", normalized=False)])
    return tokenizer


def llama_like(*, is_stripping: bool = True) -> Tokenizer:
    """SentencePiece BPE with byte fallback, as Llama 2 has it; without stripping as Gemma has it."""
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, split=True)
    # Some characters only: the others fall back to bytes.
    known = [text for text in CORPUS if text.isascii()]
    learner.train_from_iterator(known, trainers.BpeTrainer(vocab_size=200, special_tokens=[], show_progress=False))
    learnt = json.loads(learner.to_str())["model"]
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    # SentencePiece has runs of spaces as pieces; a merge makes them.
    vocab = {piece: i for i, piece in enumerate([*CONTROLS, *BYTES, *pieces, SPACE * 2])}
    merges = [*(tuple(merge) for merge in learnt["merges"]), (SPACE, SPACE)]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = [normalizers.Prepend(SPACE)] if is_stripping else []
    tokenizer.normalizer = normalizers.Sequence([*spaces, normalizers.Replace(" ", SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if is_stripping else []
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    return tokenizer


def metaspace_unigram() -> Tokenizer:
    """A unigram model that sets a space before the prompt's first word only (T5, XGLM, newer Llama conversions).

    Control tokens lie in its vocabulary with the best score, as SentencePiece exports them.
    """
    chars = sorted(set("".join(CORPUS)) - {" ", "\n"})
    words = {SPACE + word for text in CORPUS for word in text.split() if len(word) > 2}
    pieces = [(text, 0.0) for text in CONTROLS]
    pieces += [(SPACE, -3.0), *((word, -4.0) for word in sorted(words)), *((char, -8.0) for char in chars)]
    pieces += [(char, -8.0) for char in "<>/|\n" if char not in chars]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="first")
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    return tokenizer


def word_pieces() -> Tokenizer:
    pieces = [*CONTROLS, "the", "##re", "dog", "##s", ".", ",", "'", "n't", "do"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    return tokenizer


def words_without_decoder() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "<s>": 1, "</s>": 2, "big": 3, "dog": 4}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>")])
    return tokenizer


def with_begin_of_text(tokenizer: Tokenizer) -> Tokenizer:
    """The post-processor of a ``tokenizer.json`` that puts ``<s>`` before a prompt."""
    token_id = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", token_id)])
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "llama_like": llama_like,
    "gemma_like": functools.partial(llama_like, is_stripping=False),
    "metaspace_unigram": metaspace_unigram,
    "word_pieces": word_pieces,
    "words_without_decoder": words_without_decoder,
}


@functools.cache
def library(kind: str) -> Tokenizer:
    return KINDS[kind]()
