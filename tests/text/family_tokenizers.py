"""Tokenizer files as each family of models has them on the hub, with vocabularies of some hundred tokens.

Owns the layouts: normalizer, pre-tokenizer, post-processor, added tokens, the keys of tokenizer_config.json, and chat
templates.  Nothing is learnt from a text, so that the same files come out everywhere: words are merged from their left.
``make_family_goldens.py`` hands them to transformers, ``test_families.py`` to us.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

Json = dict[str, Any]
WORDS = ["the", "quick", "fox", "over", "lazy", "dog", "hello", "world", "user", "assistant", "system", "INST", "is"]
WORDS += ["what", "you", "are", "123", "12", "00", "안녕", "하세요", "def", "return", "\n\n", "  "]
SPACE = "▁"
BYTE_LEVEL: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BYTES_ONLY: Json = {**BYTE_LEVEL, "use_regex": False}
LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

LLAMA3_TEMPLATE = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
    "{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + eos_token + ' ' }}{% endif %}{% endfor %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}"
    "{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PHI3_TEMPLATE = (
    "{% for message in messages %}{{'<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)

TEXTS = [
    "the quick fox",
    " the  quick   dog ",
    "12345 1,000,000 3.14",
    "안녕하세요 세계 🙂 naïve",
    "def f(x):\n    return x\n\n\nhello",
    "user's what you're",
    "",
]
CHATS: list[list[Json]] = [
    [{"role": "user", "content": "hello world"}],
    [
        {"role": "user", "content": "what is 12 + 30?"},
        {"role": "assistant", "content": "  42, 안녕 🙂 "},
        {"role": "user", "content": "the lazy dog\n"},
    ],
    [{"role": "system", "content": "you are lazy"}, {"role": "user", "content": "hello"}],
]


@dataclass(frozen=True, slots=True)
class FamilyFiles:
    """What lies in a folder.  ``begins_with`` is what a raw prompt gets in front, by the model's own documentation."""

    model_type: str
    tokenizer: Json
    config: Json
    begins_with: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        parts = {"tokenizer.json": self.tokenizer, "tokenizer_config.json": self.config}
        parts["config.json"] = {"model_type": self.model_type}
        for name, values in parts.items():
            (folder / name).write_text(json.dumps(values, ensure_ascii=False), "utf-8")
        return folder


def byte_level_bpe(controls: list[str], **options: Any) -> Json:
    """Bytes, then what words need, then the control tokens: as GPT-2, Llama 3 and Qwen have it."""
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    spelt = [spell(text)[0][0] for word in WORDS for text in (word, f" {word}")]
    return _bpe([*sorted(pre_tokenizers.ByteLevel.alphabet())], spelt, controls, **options)


def sentencepiece_bpe(controls: list[str], *, others: tuple[str, ...] = ()) -> Json:
    """Control tokens first, bytes to fall back to, then pieces: as Llama 2, Mistral, Gemma and Phi-3 have it."""
    chars = sorted({char for word in WORDS for char in word if char != " "} | set("#(),.:'") | {SPACE})
    spelt = [text.replace(" ", SPACE) for word in WORDS for text in (word, f" {word}")]
    first = [*controls, *(f"<0x{byte:02X}>" for byte in range(256)), *chars]
    return _bpe(first, spelt, list(others), unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def _bpe(first: list[str], words: list[str], last: list[str], **options: Any) -> Json:
    vocab, merges = list(first), []
    for word in words:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                vocab.append(word[:end])
                merges.append([word[: end - 1], word[end - 1]])
    vocab += last
    plain: Json = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}
    plain |= {"fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {"type": "BPE", **plain, **options, "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges}


def whole(model: Json, controls: list[str], *, rstrip: tuple[str, ...] = (), **parts: Any) -> Json:
    added = [
        {"id": model["vocab"][text], "content": text, "single_word": False, "lstrip": False, "rstrip": text in rstrip}
        | {"normalized": False, "special": True}
        for text in sorted(controls, key=model["vocab"].__getitem__)
    ]
    empty = dict.fromkeys(["truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"])
    return {"version": "1.0", **empty, **parts, "added_tokens": added, "model": model}


def begin_with(token: str, model: Json) -> Json:
    """The post-processor that puts ``token`` before a prompt."""
    special: Json = {"SpecialToken": {"id": token, "type_id": 0}}
    sequences: list[Json] = [{"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB")]
    ids = {token: {"id": token, "ids": [model["vocab"][token]], "tokens": [token]}}
    single = [special, sequences[0]]
    return {"type": "TemplateProcessing", "single": single, "pair": [*single, *single[:1], sequences[1]]} | {
        "special_tokens": ids
    }


def prefix_space_parts() -> Json:
    """Llama 2's: a space before the text, spaces as a visible character, bytes put together again."""
    prepend = [{"type": "Prepend", "prepend": SPACE}, {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    back = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    back.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": prepend},
        "decoder": {"type": "Sequence", "decoders": back},
    }


def words_and_bytes(pattern: str) -> Json:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTES_ONLY]}


def llama3() -> FamilyFiles:
    """BOS from the post-processor, and from the template too."""
    controls = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    model = byte_level_bpe(controls, ignore_merges=True)
    around = {"type": "Sequence", "processors": [BYTE_LEVEL, begin_with("<|begin_of_text|>", model)]}
    parts: Json = {"pre_tokenizer": words_and_bytes(LLAMA3_WORDS), "post_processor": around, "decoder": BYTE_LEVEL}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    config |= {"chat_template": LLAMA3_TEMPLATE, "clean_up_tokenization_spaces": True}
    return FamilyFiles("llama", whole(model, controls, **parts), config, ["<|begin_of_text|>"])


def mistral() -> FamilyFiles:
    """Llama 2's and Mistral's: SentencePiece with a prefix space and a BOS; roles must alternate."""
    controls = ["<unk>", "<s>", "</s>"]
    model = sentencepiece_bpe(controls)
    parts = {**prefix_space_parts(), "post_processor": begin_with("<s>", model)}
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": True}
    config |= {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": MISTRAL_TEMPLATE}
    return FamilyFiles("mistral", whole(model, controls, **parts), config, ["<s>"])


def gemma() -> FamilyFiles:
    """SentencePiece without a prefix space, a BOS, and a template that takes no system message."""
    controls = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    model = sentencepiece_bpe(controls)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    back = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    parts: Json = {"normalizer": replace, "pre_tokenizer": split, "decoder": {"type": "Sequence", "decoders": back}}
    parts["post_processor"] = begin_with("<bos>", model)
    config: Json = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False}
    config |= {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    config["chat_template"] = GEMMA_TEMPLATE
    return FamilyFiles("gemma", whole(model, controls, **parts), config, ["<bos>"])


def qwen2() -> FamilyFiles:
    """No BOS at all, not even a name for one."""
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    model = byte_level_bpe(controls)
    parts: Json = {"normalizer": {"type": "NFC"}, "pre_tokenizer": words_and_bytes(QWEN_WORDS), "decoder": BYTE_LEVEL}
    parts["post_processor"] = BYTES_ONLY
    config: Json = {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": False, "add_prefix_space": False}
    config |= {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None}
    config["chat_template"] = CHATML_TEMPLATE
    return FamilyFiles("qwen2", whole(model, controls, **parts), config)


def gpt2() -> FamilyFiles:
    """It names a BOS and never puts one; no chat template."""
    controls = ["<|endoftext|>"]
    model = byte_level_bpe(controls)
    parts: Json = {"pre_tokenizer": BYTE_LEVEL, "post_processor": BYTE_LEVEL, "decoder": BYTE_LEVEL}
    config: Json = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    config |= {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    return FamilyFiles("gpt2", whole(model, controls, **parts), config)


def opt() -> FamilyFiles:
    """GPT-2's words, and ``</s>`` before every prompt."""
    controls = ["<pad>", "</s>"]
    model = byte_level_bpe(controls)
    parts: Json = {"pre_tokenizer": BYTE_LEVEL, "post_processor": begin_with("</s>", model), "decoder": BYTE_LEVEL}
    config: Json = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "pad_token": "<pad>"}
    config |= {f"{role}_token": "</s>" for role in ("bos", "eos", "unk")}
    return FamilyFiles("opt", whole(model, controls, **parts), config, ["</s>"])


def phi3() -> FamilyFiles:
    """Llama 2's words without a BOS; control tokens swallow the white space behind them."""
    controls, others = ["<unk>", "<s>", "</s>"], ["<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"]
    model = sentencepiece_bpe(controls, others=tuple(others))
    parts = prefix_space_parts()
    swallowing = ("<|assistant|>", "<|system|>", "<|end|>", "<|user|>")
    config: Json = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": False,
        "add_eos_token": False,
        "legacy": False,
    }
    config |= {"bos_token": "<s>", "eos_token": "<|endoftext|>", "unk_token": "<unk>", "pad_token": "<|endoftext|>"}
    config["chat_template"] = PHI3_TEMPLATE
    return FamilyFiles("phi3", whole(model, [*controls, *others], rstrip=swallowing, **parts), config)


def gpt_neox() -> FamilyFiles:
    """GPT-2's words behind a normalizer; no BOS."""
    controls = ["<|endoftext|>", "<|padding|>"]
    model = byte_level_bpe(controls)
    parts: Json = {"normalizer": {"type": "NFC"}, "pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL}
    parts["post_processor"] = BYTE_LEVEL
    config: Json = {"tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": False}
    config |= {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    return FamilyFiles("gpt_neox", whole(model, controls, **parts), config)


def smollm2() -> FamilyFiles:
    """Single digits; a BOS by name that only the template writes."""
    controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    model = byte_level_bpe(controls)
    digits = {"type": "Digits", "individual_digits": True}
    steps = {"type": "Sequence", "pretokenizers": [digits, BYTE_LEVEL]}
    config: Json = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    config |= {"unk_token": "<|endoftext|>", "pad_token": "<|im_end|>", "chat_template": CHATML_TEMPLATE}
    return FamilyFiles("llama", whole(model, controls, pre_tokenizer=steps, decoder=BYTE_LEVEL), config)


FAMILIES = {family.__name__: family() for family in (llama3, mistral, gemma, qwen2, gpt2, opt, phi3, gpt_neox, smollm2)}
