"""Make the golden data that parity is checked against: what transformers computes, written down.

Owns ``tiny/`` (small random models of each family, with their golden.json) and ``smollm2*.json``.  Needs torch and
transformers, which the package and its default tests don't; so its output is committed, and this is run by hand:

    python tests/golden/make_golden.py tiny
    python tests/golden/make_golden.py smollm2 --gguf SmolLM2-135M-Instruct.Q4_1.gguf

Every case is one sequence alone, float32, greedy ``generate()`` with its cache, end tokens ignored.  A token may only
be compared where float noise can't flip it: ``min_gap`` is the smallest distance between the best and the second best
logit along the way, and a prompt whose gap is below the bound is replaced by another one (tiny) or dropped (SmolLM2).
For the tiny models the whole run is repeated in float64: the tokens must be the same, and ``max_noise`` tells how far
float32's logits lie from float64's.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from golden_texts import SMOLLM2_PROMPTS, TOKENIZER_TEXTS, TRAINING_TEXT
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
VOCAB_SIZE = 384
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TINY_PROMPT_LENS = (1, 2, 3, 5, 8, 13, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 127, 128, 129, 200)
TINY_LOGITS_LENS = (1, 17, 65, 200)
TINY_OUTPUT_LEN = 24
TINY_MIN_GAP = 1e-2
MIN_DISTINCT = 8  # of the output's tokens, on average: a model that repeats one token tests nothing
SMOLLM2_OUTPUT_LEN = 32
SMOLLM2_MIN_GAP = 2e-3
SMOLLM2_LOGITS_LENS = (1, 64, 256)

LLAMA_LIKE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
PLAIN: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
OPT_SIZES = {"hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
GPT2_SIZES = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 256}

# The stored types differ on purpose: both 16-bit readers are exercised.
TINY_MODELS: dict[str, tuple[transformers.PretrainedConfig, torch.dtype]] = {
    "llama": (transformers.LlamaConfig(**LLAMA_LIKE, head_dim=32), torch.bfloat16),
    "llama3": (
        transformers.LlamaConfig(**LLAMA_LIKE, head_dim=32, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=True),
        torch.bfloat16,
    ),
    "mistral": (transformers.MistralConfig(**LLAMA_LIKE, head_dim=32, sliding_window=16), torch.float16),
    "qwen2": (
        transformers.Qwen2Config(**{**LLAMA_LIKE, "num_attention_heads": 2, "num_key_value_heads": 1}),
        torch.bfloat16,
    ),
    "qwen3": (transformers.Qwen3Config(**LLAMA_LIKE, head_dim=32, tie_word_embeddings=True), torch.float16),
    "opt": (transformers.OPTConfig(**PLAIN, **OPT_SIZES, max_position_embeddings=256), torch.bfloat16),
    "gpt2": (transformers.GPT2Config(**PLAIN, **GPT2_SIZES), torch.float16),
}
SHARDED = ("qwen3",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("tiny", "smollm2"))
    parser.add_argument("--gguf", type=Path, help="the default model's file, for smollm2")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if arguments.what == "tiny":
        make_tiny()
    else:
        make_smollm2(arguments.gguf)


def make_tiny() -> None:
    tokenizer = train_tokenizer()
    for number, (name, (config, dtype)) in enumerate(TINY_MODELS.items()):
        folder = HERE / "tiny" / name
        shutil.rmtree(folder, ignore_errors=True)
        save_tiny(random_model(config, seed=100 + number), dtype, folder, is_sharded=name in SHARDED)
        save_tokenizer(tokenizer, folder)
        # What the files hold is what counts: loaded anew, since the stored type rounded the weights.
        model = load(folder, torch.float32)
        cases = tiny_cases(model, load(folder, torch.float64), np.random.default_rng(number))
        distinct = float(np.mean([len(set(case["output_token_ids"])) for case in cases]))
        assert distinct >= MIN_DISTINCT, f"{name}: outputs have only {distinct:.1f} distinct tokens"
        write_golden(folder / "golden.json", name, cases)
        size = sum(path.stat().st_size for path in folder.iterdir())
        gap, noise = min(case["min_gap"] for case in cases), max(case["max_noise"] for case in cases)
        print(f"{name}: {size / 1e3:.0f} kB, {distinct:.1f} distinct of 24, min gap {gap:.3f}, max noise {noise:.1e}")


def random_model(config: transformers.PretrainedConfig, seed: int) -> transformers.PreTrainedModel:
    """Weights large enough that attention looks somewhere and the output isn't one token again and again."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name or ".ln_" in name
            if is_norm and name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.2)
            elif "embed" in name or ".wte" in name or ".wpe" in name or "lm_head" in name:
                parameter.normal_(0, 0.5)
            else:
                parameter.normal_(0, 0.25)
    return model


def save_tiny(model: transformers.PreTrainedModel, dtype: torch.dtype, folder: Path, *, is_sharded: bool) -> None:
    model.to(dtype).save_pretrained(folder, max_shard_size="100KB" if is_sharded else "1GB")


def train_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT.splitlines(), trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE, tokenizer.get_vocab_size()
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False), "utf-8")
    settings = {
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": SPECIAL_TOKENS[2],
        "pad_token": SPECIAL_TOKENS[0],
        "chat_template": CHAT_TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n", "utf-8")


def load(folder: Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def tiny_cases(
    model: transformers.PreTrainedModel, exact: transformers.PreTrainedModel, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """One case a length, each with a prompt that was drawn until the gap was wide enough."""
    cases = []
    for prompt_len in TINY_PROMPT_LENS:
        for _ in range(1000):
            prompt = rng.integers(3, VOCAB_SIZE, prompt_len).tolist()  # no special tokens
            case, logits = greedy_case(model, prompt, TINY_OUTPUT_LEN)
            if case["min_gap"] >= TINY_MIN_GAP:
                break
        else:
            raise SystemExit(f"no prompt of {prompt_len} tokens keeps a gap of {TINY_MIN_GAP}")
        exact_case, exact_logits = greedy_case(exact, prompt, TINY_OUTPUT_LEN)
        assert exact_case["output_token_ids"] == case["output_token_ids"], "float noise flipped a token"
        case["max_noise"] = float((logits.double() - exact_logits.double()).abs().max())
        assert case["max_noise"] < TINY_MIN_GAP / 10, case["max_noise"]
        if prompt_len in TINY_LOGITS_LENS:
            case["logits"] = picked_logits(exact_logits[0], list(range(VOCAB_SIZE)))
        cases.append(case)
    return cases


def greedy_case(
    model: transformers.PreTrainedModel, prompt: list[int], num_tokens: int
) -> tuple[dict[str, Any], torch.Tensor]:
    """Prompt, output and gap of one greedy run, and the logits of every drawn token, [num_tokens, vocab]."""
    model.generation_config.eos_token_id = None  # an output that ends early would test less
    with torch.no_grad():
        run = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=num_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=0,
        )
    logits = torch.cat(run.logits)  # [num_tokens, vocab]
    best = logits.topk(2).values  # [num_tokens, 2]
    case = {
        "prompt_token_ids": prompt,
        "output_token_ids": run.sequences[0, len(prompt) :].tolist(),
        "min_gap": float((best[:, 0] - best[:, 1]).min()),
    }
    return case, logits


def picked_logits(logits: torch.Tensor, ids: list[int]) -> dict[str, list[Any]]:
    """Logits after the prompt's last token, of these ids."""
    return {"token_ids": ids, "values": [round(float(logits[i]), 5) for i in ids]}


def write_golden(path: Path, model: str, cases: list[dict[str, Any]]) -> None:
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = f'"schema": 1, "model": {json.dumps(model)}, "made_with": {json.dumps(made_with)}'
    path.write_text(f'{{{head}, "cases": [\n{lines}\n]}}\n', "utf-8")


def make_smollm2(gguf: Path) -> None:
    """SmolLM2's own weights, dequantised by transformers, and its tokenizer."""
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    write_tokenizer_golden(tokenizer)
    prompts = [tokenizer.encode(text, add_special_tokens=False)[:length] for text, length in SMOLLM2_PROMPTS]
    for prompt, (text, length) in zip(prompts, SMOLLM2_PROMPTS, strict=True):
        assert len(prompt) == length, f"{text[:30]!r} has only {len(prompt)} tokens, not {length}"
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    cases = []
    for prompt in prompts:
        case, logits = greedy_case(model, prompt, SMOLLM2_OUTPUT_LEN)
        print(f"{len(prompt)} tokens: gap {case['min_gap']:.4f} {tokenizer.decode(case['output_token_ids'])[:60]!r}")
        if case["min_gap"] < SMOLLM2_MIN_GAP:
            continue
        if len(prompt) in SMOLLM2_LOGITS_LENS:
            best = logits[0].topk(16).indices.tolist()
            others = list(range(0, model.config.vocab_size, model.config.vocab_size // 64))[:64]
            case["logits"] = picked_logits(logits[0], list(dict.fromkeys(best + others)))
        cases.append(case)
    write_golden(HERE / "smollm2.json", "smollm2-135m", cases)
    print(f"kept {len(cases)} of {len(SMOLLM2_PROMPTS)}")


def write_tokenizer_golden(tokenizer: transformers.PreTrainedTokenizerFast) -> None:
    """Ids of texts.  transformers' conversion forgets that this tokenizer splits digits off, as its published
    tokenizer.json does; that shows only after a run of spaces, and is put right here.
    """
    plain = {text: tokenizer.encode(text, add_special_tokens=False) for text in TOKENIZER_TEXTS}
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    cases = []
    for text, before in plain.items():
        ids = tokenizer.encode(text, add_special_tokens=False)
        if ids != before:
            print(f"the digits' split matters in {text!r}")
        cases.append({"text": text, "token_ids": ids})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "smollm2_tokenizer.json").write_text(f'{{"schema": 1, "cases": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main()
