"""Tiny random models made on the spot, transformers' own answers one prompt at a time, and rounds through the engine.

torch is imported where it is needed: these files are collected in environments that don't have it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from everystep.config import Settings
from everystep.engine.bootstrap import build_core
from everystep.messages import Abort, StepRecord, Submit
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, SampledToken

Case = tuple[list[int], list[int]]  # a prompt and its greedy output
VOCAB = 96
CONTEXT = 64
EOS = 2
CLEAR_GAP = 1e-3  # between the two largest logits: far above float noise
SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
    "tie_word_embeddings": False,
}
WITH_MLP = SMALL | {"intermediate_size": 64, "initializer_range": 0.3}
GROUPED = WITH_MLP | {"num_key_value_heads": 2, "head_dim": 8}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("OPTConfig", SMALL | {"ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3}),
    "gpt2": ("GPT2Config", SMALL | {"initializer_range": 0.3}),
    "llama": ("LlamaConfig", GROUPED),
    "llama_dynamic": (
        "LlamaConfig",
        GROUPED | {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "mistral": ("MistralConfig", GROUPED | {"sliding_window": 8}),
    "qwen3": ("Qwen3Config", GROUPED),
    "gemma2": ("Gemma2Config", GROUPED | {"sliding_window": 8, "query_pre_attn_scalar": 8}),
    "gpt_neox": ("GPTNeoXConfig", WITH_MLP),
    "bloom": ("BloomConfig", WITH_MLP),
}

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.0, 4.0, 9.0, 25.0],
    "original_max_position_embeddings": 16,
}
PHI3 = ("Phi3Config", WITH_MLP | {"original_max_position_embeddings": 16, "rope_parameters": LONGROPE})


def save_tiny(family: str, folder: Path, **more: Any) -> Path:
    """A random model of the family as a Hugging Face folder."""
    import torch
    import transformers

    kind, options = (FAMILIES | {"phi3": PHI3})[family]
    torch.manual_seed(5)
    config = getattr(transformers, kind)(**(options | more))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


class Reference:
    """The folder's model as transformers loads it: what each prompt gets alone."""

    def __init__(self, folder: Path) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.model.generation_config.eos_token_id = None  # as many tokens as asked for

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        import torch

        input_ids = torch.tensor(
            [prompt]
        )  # with a mask of ones: transformers takes a pad token in a prompt for padding
        mask = torch.ones_like(input_ids)
        output = self.model.generate(input_ids, attention_mask=mask, do_sample=False, max_new_tokens=num_tokens)
        return list(output[0, len(prompt) :].tolist())

    def logits(self, token_ids: list[int]) -> Any:
        """``[vocab]`` after the text, without a cache."""
        import torch

        with torch.no_grad():
            return self.model(torch.tensor([token_ids])).logits[0, -1].float().numpy()

    def is_clear(self, prompt: list[int], output: list[int]) -> bool:
        """Whether the two likeliest tokens stay well apart at each step, so that rounding can't swap them."""
        import torch

        with torch.no_grad():
            logits = self.model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
        top = logits.topk(2).values  # [tokens, 2]
        return bool((top[:, 0] - top[:, 1] > CLEAR_GAP).all())

    def cases(self, shapes: list[tuple[int, int]], seed: int = 1) -> list[Case]:
        """Prompts and outputs of these lengths, whose every token is clear."""
        rng = random.Random(seed)

        def prompts(length: int) -> Iterator[list[int]]:
            while True:
                yield [rng.randrange(3, VOCAB) for _ in range(length)]

        return [self._first_clear(prompts(num_prompt), num_output) for num_prompt, num_output in shapes]

    def framed_case(self, begin: list[int], end: list[int], num_tokens: int) -> Case:
        """A prompt with these tokens around one other."""
        return self._first_clear(([*begin, token_id, *end] for token_id in range(3, VOCAB)), num_tokens)

    def _first_clear(self, prompts: Iterable[list[int]], num_tokens: int) -> Case:
        cases = ((prompt, self.greedy(prompt, num_tokens)) for prompt in prompts)
        return next(case for case in cases if self.is_clear(*case))


class Rounds:
    """A core with a runner of rounds; notes what each sequence got."""

    def __init__(self, folder: Path, runner: Any, **settings: Any) -> None:
        self.settings = Settings(model=str(folder), **({"kv_cache_gib": 0.25} | settings))
        self.core, self.info = build_core(self.settings, now_s=lambda: float(len(self.records)), runner=runner)
        self.records: list[StepRecord] = []
        self.sampled: dict[str, list[SampledToken]] = {}
        self.ends: dict[str, FinishReason] = {}
        self.errors: dict[str, str | None] = {}

    def submit(self, name: str, prompt: list[int], max_tokens: int, *, seed: int = 0, **params: Any) -> None:
        options = SamplingParams(max_tokens=max_tokens, **({"ignore_eos": True} | params))
        self.sampled[name] = []
        self.core.submit(Submit(name, name, "static", tuple(prompt), options, seed, (EOS,), 0, 0.0))

    def submit_cases(self, cases: list[Case]) -> None:
        """Under their numbers as names."""
        for i, (prompt, output) in enumerate(cases):
            self.submit(str(i), prompt, len(output))

    def abort(self, name: str) -> None:
        self.core.abort(Abort(name, FinishReason.ABORTED))

    def step(self) -> StepRecord | None:
        output = self.core.step()
        record = msgspec.msgpack.decode(output.record, type=StepRecord) if output else None
        for event in (*(output.events if output else ()), *self.core.take_events()):
            if event.token:
                self.sampled[event.sequence_id].append(event.token)
            if event.finish_reason:
                assert event.sequence_id not in self.ends
                self.ends[event.sequence_id] = event.finish_reason
                self.errors[event.sequence_id] = event.error
        if record:
            self.records.append(record)
        return record

    def run(self) -> Rounds:
        while self.core.has_work():
            assert self.step() is not None
        self.step()  # what no step told: refusals
        self.core.pool.check()
        assert self.core.pool.num_used_blocks == 0
        return self

    def tokens(self, name: str | int) -> list[int]:
        return [token.token_id for token in self.sampled[str(name)]]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of the steps that begin a round."""
        return [record.shape for record in self.records if all(row.phase == "prefill" for row in record.rows)]


class Calls:
    """Notes each ``generate()`` call of any model: its rectangle, its options, and when it began and ended."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.configs: list[Any] = []
        self.num_processors: list[int] = []
        self.history: list[str] = []

    @contextmanager
    def watched(self, monkeypatch: Any) -> Iterator[Calls]:
        from transformers import GenerationMixin

        plain = GenerationMixin.generate

        def generate(model: Any, input_ids: Any, **options: Any) -> Any:
            self.shapes.append(tuple(input_ids.shape))
            self.configs.append(options["generation_config"])
            self.num_processors.append(len(options["logits_processor"]))
            self.history.append("begin")
            try:
                return plain(model, input_ids, **options)
            finally:
                self.history.append("end")

        with monkeypatch.context() as patch:
            patch.setattr(GenerationMixin, "generate", generate)
            yield self
