"""The runner of rounds: one call a round, rounds that break off or down, draws, and what it refuses.  Needs torch."""

from __future__ import annotations

import inspect
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everystep.errors import ConfigError, ModelError, UnsupportedModel, UnsupportedOption
from everystep.runner.sampling import Sampler
from everystep.sampling_params import SamplingParams
from everystep.types import FinishReason, Row, Sequence, StepPlan
from runner.generate_bench import CONTEXT, EOS, SMALL, VOCAB, Calls, Reference, Rounds, save_tiny

pytestmark = pytest.mark.torch

POISON = 77  # a token id


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("opt", tmp_path_factory.mktemp("opt"))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


def make_runner(folder: Path, **options: Any) -> Any:
    from everystep.runner.generate import GenerateRunner

    return GenerateRunner(folder, **{"precision": "f32", "num_threads": 1, **options})


@pytest.fixture
def runner(folder: Path) -> Iterator[Any]:
    runner = make_runner(folder)
    yield runner
    runner.close()


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "everystep-generate"]


class Breakdown(RuntimeError):
    """What a model might raise."""


def break_after(monkeypatch: pytest.MonkeyPatch, runner: Any, num_passes: int) -> None:
    """The forward pass after ``num_passes`` good ones raises, once."""
    model, passes = runner._loaded.model, iter(range(10_000))
    plain = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if next(passes) == num_passes:
            raise Breakdown("the model broke")
        return plain(*args, **kwargs)

    forward.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]
    monkeypatch.setattr(model, "forward", forward)


# --- rounds --------------------------------------------------------------------------------------
def test_ten_prompts_on_four_seats_are_three_calls_and_each_step_brings_each_living_row_one_token(
    folder: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = reference.cases([(n, 2 + n % 3) for n in range(1, 11)])
    runner = make_runner(folder)
    rounds = Rounds(folder, runner)
    rounds.submit_cases(cases)
    with Calls().watched(monkeypatch) as calls:
        while rounds.core.has_work():
            before = sum(map(len, rounds.sampled.values()))
            record = rounds.step()
            assert record is not None
            assert sum(map(len, rounds.sampled.values())) - before == sum(row.phase != "held" for row in record.rows)
        runner.close()
    assert [rounds.tokens(i) for i in range(10)] == [output for _, output in cases]
    assert calls.shapes == rounds.shapes == [(4, 4), (4, 8), (2, 10)]
    assert calls.history == ["begin", "end"] * 3


def test_each_round_is_logged_with_its_shape(folder: Path, runner: Any, caplog: pytest.LogCaptureFixture) -> None:
    rounds = Rounds(folder, runner)
    for length in (5, 4, 4, 5, 6):  # the five prompts of the comparison that this grew from, with OPT's begin of text
        rounds.submit(str(len(rounds.sampled)), [7] * length, 20)
    with caplog.at_level(logging.INFO, logger="everystep.runner.generate"):
        rounds.run()
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["round 0: [4, 5], 20 new tokens at most", "round 1: [1, 6], 20 new tokens at most"]
    assert rounds.shapes == [(4, 5), (1, 6)]


def test_more_than_the_context_is_refused_with_the_numbers_and_nothing_is_cut(folder: Path, runner: Any) -> None:
    rounds = Rounds(folder, runner)
    rounds.submit("too long", [5] * 60, 5)
    rounds.submit("just", [5] * 60, 4)
    rounds.run()
    assert rounds.ends == {"too long": FinishReason.FAILED, "just": FinishReason.LENGTH}
    assert rounds.errors["too long"] == f"max_tokens=5 but the prompt leaves room for 4 of {CONTEXT}"


def test_a_member_that_leaves_in_the_middle_changes_no_other(folder: Path, runner: Any, reference: Reference) -> None:
    cases = reference.cases([(5, 10), (9, 10), (2, 10)])
    rounds = Rounds(folder, runner)
    rounds.submit_cases(cases)
    for _ in range(4):
        rounds.step()
    rounds.abort("1")
    rounds.run()
    assert rounds.tokens(1) == cases[1][1][:4]
    assert rounds.ends["1"] is FinishReason.ABORTED
    assert [rounds.tokens(i) for i in (0, 2)] == [cases[i][1] for i in (0, 2)]
    assert [row.phase for row in rounds.records[-1].rows] == ["decode", "held", "decode"]


def test_a_round_that_everybody_left_ends_before_the_next_begins(
    folder: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = reference.cases([(5, 30), (9, 30), (4, 6)])
    runner = make_runner(folder)
    rounds = Rounds(folder, runner, static_batch_size=2)
    rounds.submit_cases(cases)
    with Calls().watched(monkeypatch) as calls:
        for _ in range(3):
            rounds.step()
        rounds.abort("0")
        rounds.abort("1")
        assert calls.history == ["begin"]
        rounds.run()
        runner.close()
    assert calls.history == ["begin", "end", "begin", "end"]
    assert [rounds.tokens(i) for i in range(3)] == [cases[0][1][:3], cases[1][1][:3], cases[2][1]]


@pytest.mark.parametrize("num_passes", [0, 3])
def test_a_model_that_breaks_fails_its_round_in_its_words_and_the_next_round_runs(
    folder: Path, runner: Any, reference: Reference, monkeypatch: pytest.MonkeyPatch, num_passes: int
) -> None:
    cases = reference.cases([(5, 10), (9, 10), (4, 6)])
    rounds = Rounds(folder, runner, static_batch_size=2)
    rounds.submit_cases(cases)
    break_after(monkeypatch, runner, num_passes)
    rounds.run()
    assert [rounds.ends[str(i)] for i in range(3)] == [FinishReason.FAILED, FinishReason.FAILED, FinishReason.LENGTH]
    assert rounds.errors["0"] == rounds.errors["1"] == "the forward pass failed: Breakdown: the model broke"
    assert rounds.tokens(0) == cases[0][1][:num_passes]
    assert rounds.tokens(2) == cases[2][1]


@pytest.mark.parametrize("num_steps", [0, 3, 10])  # before, in the middle of, and after a round
def test_no_thread_is_left_after_close(folder: Path, num_steps: int) -> None:
    assert our_threads() == []
    runner = make_runner(folder)
    rounds = Rounds(folder, runner)
    rounds.submit("a", [5, 6], 10)
    for _ in range(num_steps):
        rounds.step()
    assert len(our_threads()) == 1
    runner.close()
    assert our_threads() == []


def a_row(start: int, num_new_tokens: int, *, name: str = "a", length: int = 5) -> Row:
    sequence = Sequence(name, "r", "static", [7] * length, 3, SamplingParams(max_tokens=9), 0, frozenset())
    return Row(sequence, 0, start, num_new_tokens)


@pytest.mark.parametrize("row", [a_row(3, 1), a_row(0, 2), a_row(4, 1)])
def test_a_plan_that_is_no_rounds_step_is_our_own_bug(runner: Any, row: Row) -> None:
    with pytest.raises(AssertionError, match="round"):
        runner.run(StepPlan("static", (row,)))


def test_frequencies_that_follow_the_longest_text_are_held_where_all_texts_have_the_same(tmp_path: Path) -> None:
    """Up to 16 tokens the model turns by short factors.  The rectangle grows to 26, one text to more than 16."""
    folder = save_tiny("phi3", tmp_path)
    reference, runner = Reference(folder), make_runner(folder)
    cases = reference.cases([(14, 2), (3, 12)])
    rounds = Rounds(folder, runner)
    rounds.submit_cases(cases)
    rounds.submit("grows", cases[1][0][:2], 20)
    rounds.submit("is", [5] * 17, 2)
    rounds.run()
    runner.close()
    assert [rounds.tokens(i) for i in range(2)] == [output for _, output in cases]
    assert [len(rounds.tokens(name)) for name in ("grows", "is")] == [15, 0]
    for name in ("grows", "is"):
        assert rounds.ends[name] is FinishReason.FAILED
        assert rounds.errors[name] == "the text is over the 16 tokens that this model computes alike in any company"


# --- draws ---------------------------------------------------------------------------------------
RECIPES: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {},
    {"temperature": 0.8, "top_p": 0.9, "logprobs": 3},
    {"temperature": 1.5, "top_k": 9, "min_p": 0.05},
    {"repetition_penalty": 1.7},
    {"temperature": 1.0, "presence_penalty": 1.5, "frequency_penalty": 0.5},
    {"logit_bias": {11: 6.0, 12: -100.0}, "logprobs": 0},
    {"min_tokens": 8, "ignore_eos": False, "logit_bias": {EOS: 50.0}},
    {"logprobs": 2},
]


def alone(reference: Reference, prompt: list[int], seed: int, options: dict[str, Any]) -> list[Any]:
    """What the sampler draws, one prompt at a time, from logits that were computed without cache and padding."""
    params = SamplingParams(max_tokens=10, **({"ignore_eos": True} | options))
    sequence = Sequence("s", "r", "static", list(prompt), len(prompt), params, seed, frozenset({EOS}))
    sampler, drawn = Sampler(VOCAB), []
    while len(drawn) < 10:
        row = Row(sequence, 0, sequence.num_tokens - 1, 1)
        token = sampler.sample(reference.logits(sequence.token_ids)[None].copy(), [row]).tokens["s"]
        drawn.append(token)
        sequence.token_ids.append(token.token_id)
        if token.token_id == EOS and not params.ignore_eos and len(drawn) >= params.min_tokens:
            break
    return drawn


def test_rows_of_all_recipes_share_a_round_and_each_draws_what_it_draws_alone(
    folder: Path, runner: Any, reference: Reference
) -> None:
    rounds = Rounds(folder, runner, static_batch_size=len(RECIPES))
    prompts = [prompt for prompt, _ in reference.cases([(3 + 2 * i, 10) for i in range(len(RECIPES))])]
    for i, options in enumerate(RECIPES):
        rounds.submit(str(i), prompts[i], 10, seed=1000 + i, **options)
    rounds.run()
    for i, options in enumerate(RECIPES):
        expected = alone(reference, prompts[i], 1000 + i, options)
        got = rounds.sampled[str(i)]
        assert [token.token_id for token in got] == [token.token_id for token in expected], options
        for one, other in zip(got, expected, strict=True):
            assert (one.logprob is None) == (other.logprob is None) == ("logprobs" not in options)
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [top.token_id for top in one.top] == [top.token_id for top in other.top]
    assert len(rounds.tokens(7)) == 9, "the end of text, which nothing else keeps away, comes after min_tokens"


def test_only_the_row_with_the_seed_that_changed_draws_otherwise(folder: Path, runner: Any) -> None:
    drawn = []
    for seed in (1, 2):
        rounds = Rounds(folder, runner)
        rounds.submit("a", [5, 6, 7], 20, seed=9, temperature=2.0)
        rounds.submit("b", [5, 6, 7], 20, seed=seed, temperature=2.0)
        drawn.append(rounds.run())
    assert drawn[0].tokens("a") == drawn[1].tokens("a")
    assert drawn[0].tokens("b") != drawn[1].tokens("b")


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"logprobs": 1}])
def test_a_row_without_finite_logits_fails_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    folder = save_tiny("llama", tmp_path)
    reference = Reference(folder)
    reference.model.model.embed_tokens.weight.data[POISON] = np.nan
    reference.model.save_pretrained(folder)
    rng = np.random.default_rng(0)
    sound = [[int(t) for t in rng.integers(3, POISON, n)] for n in (4, 8)]
    runner = make_runner(folder)
    rounds = Rounds(folder, runner)
    rounds.submit("0", sound[0], 1, **options)
    rounds.submit("ill", [5, POISON, 6], 4, **options)
    rounds.submit("1", sound[1], 1, **options)
    rounds.run()
    runner.close()
    assert rounds.ends["ill"] is FinishReason.FAILED
    assert rounds.errors["ill"] is not None
    assert "no token can be drawn: the largest logit is nan" in rounds.errors["ill"]
    assert [rounds.ends[name] for name in "01"] == [FinishReason.LENGTH] * 2
    if not options.get("temperature"):
        assert [rounds.tokens(i) for i in range(2)] == [reference.greedy(prompt, 1) for prompt in sound]


# --- what it is and what it refuses --------------------------------------------------------------
def test_a_block_takes_what_keys_and_values_of_its_tokens_take(tmp_path: Path, runner: Any) -> None:
    assert runner.kv_block_bytes == 32 * 2 * 2 * 32 * 4  # tokens, layers, keys and values, hidden size, bytes
    grouped = make_runner(save_tiny("llama", tmp_path), precision="bf16")
    grouped.close()
    assert grouped.kv_block_bytes == 32 * 2 * 2 * (2 * 8) * 2  # two heads of 8 for keys and values
    assert (grouped.name, grouped.precision, grouped.lanes) == ("hf-generate", "bf16", ("static",))
    assert (grouped.vocab_size, grouped.num_threads) == (VOCAB, 1)


def test_auto_is_bf16_only_where_the_cpu_computes_it() -> None:
    from everystep.runner.generate.loading import resolve_precision

    assert resolve_precision("auto", {"avx2"}) == "f32"
    assert resolve_precision("auto", {"avx2", "avx512_bf16"}) == "bf16"
    assert resolve_precision("bf16", set()) == "bf16"


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_quantised_weights_are_refused_by_name(folder: Path, precision: str) -> None:
    with pytest.raises(UnsupportedOption, match=f"precision='{precision}'.*f32 or bf16 only"):
        make_runner(folder, precision=precision)


def test_an_unknown_precision_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="precision='f64' is none of auto, f32, bf16"):
        make_runner(folder, precision="f64")


def save(kind: str, folder: Path, **options: Any) -> Path:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**options)
    model = getattr(transformers, f"{kind}ForCausalLM", None) or getattr(
        transformers, f"{kind}ForConditionalGeneration"
    )
    model(config).save_pretrained(folder)
    return folder


def test_an_encoder_decoder_is_refused_by_name(tmp_path: Path) -> None:
    folder = save("T5", tmp_path, vocab_size=96, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(UnsupportedModel, match="t5 is an encoder-decoder model"):
        make_runner(folder)


def test_a_model_whose_positions_ignore_padding_is_refused(tmp_path: Path) -> None:
    small = {"d_model": 16, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
    folder = save("Bart", tmp_path, vocab_size=96, is_encoder_decoder=False, is_decoder=True, **small)
    with pytest.raises(UnsupportedModel, match="bart: transformers gives a left-padded row other logits"):
        make_runner(folder)


def test_a_causal_mask_that_a_rectangle_may_outgrow_is_refused_by_name(tmp_path: Path) -> None:
    layers = {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 2}
    folder = save("GPTNeo", tmp_path, vocab_size=96, hidden_size=16, max_position_embeddings=64, **layers)
    with pytest.raises(UnsupportedModel, match="gpt_neo keeps its causal mask"):
        make_runner(folder)


def test_stored_quantised_weights_are_refused(tmp_path: Path, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="opt model's weights are stored quantised"):
        make_runner(tmp_path)


def test_a_missing_weight_is_never_made_up(tmp_path: Path, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    weights = load_file(folder / "model.safetensors")
    del weights["model.decoder.layers.1.fc1.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of the model's weights, model\.decoder\.layers\.1\.fc1\.weight"):
        make_runner(tmp_path)


def test_a_folder_without_weights_is_a_model_error_that_names_it(tmp_path: Path) -> None:
    import transformers

    transformers.OPTConfig(**SMALL).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=str(tmp_path)):
        make_runner(tmp_path)


def test_weights_that_need_pickle_are_not_read(tmp_path: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save(load_file(folder / "model.safetensors"), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        make_runner(tmp_path)


def test_a_kind_that_transformers_does_not_know_is_unsupported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "novel", "auto_map": {"AutoConfig": "novel.Config"}}')
    with pytest.raises(UnsupportedModel, match=str(tmp_path)):
        make_runner(tmp_path)
