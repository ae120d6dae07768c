"""Rounds of one ``generate()`` call give each row what transformers gives it alone.  Needs torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everystep.types import FinishReason
from runner.generate_bench import CONTEXT, EOS, FAMILIES, Calls, Reference, Rounds, save_tiny

pytestmark = pytest.mark.torch

MIXED = [(1, 12), (5, 3), (9, 20), (30, 7), (2, 1), (17, 16)]  # prompt and output lengths; the window is 8


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


@pytest.fixture
def runner(folder: Path) -> Iterator[Any]:
    from everystep.runner.generate import GenerateRunner

    runner = GenerateRunner(folder, precision="f32", num_threads=1)
    yield runner
    runner.close()


def test_prompts_and_outputs_of_all_lengths_in_one_round_get_the_tokens_of_each_alone(
    folder: Path, runner: Any, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = reference.cases(MIXED)
    rounds = Rounds(folder, runner, static_batch_size=len(cases))
    rounds.submit_cases(cases)
    with Calls().watched(monkeypatch) as calls:
        rounds.run()
    assert [rounds.tokens(i) for i in range(len(cases))] == [output for _, output in cases]
    assert set(rounds.ends.values()) == {FinishReason.LENGTH}
    assert (calls.shapes, calls.num_processors) == ([(6, 30)], [0])
    assert len(rounds.records) == 20  # one token a step


def test_ended_rows_are_computed_past_the_context_and_harm_nobody(
    folder: Path, runner: Any, reference: Reference
) -> None:
    """The first ends after 4 tokens; on it goes to position 118 of a context of 64."""
    cases = reference.cases([(CONTEXT - 4, 4), (4, CONTEXT - 4), (20, 30)])
    rounds = Rounds(folder, runner)
    rounds.submit_cases(cases)
    rounds.run()
    assert [rounds.tokens(i) for i in range(3)] == [output for _, output in cases]


def test_padding_that_is_also_the_end_of_text_is_never_mistaken_for_either(
    folder: Path, runner: Any, reference: Reference
) -> None:
    """Prompts begin, end and are filled with the id that pads (0) and the id that ends a text (2)."""
    frames = [([0], [EOS]), ([EOS, EOS], [0]), ([EOS] * 5, [EOS] * 3), ([0] * 4, [0])]
    cases = [reference.framed_case(begin, end, 8) for begin, end in frames]
    rounds = Rounds(folder, runner)
    rounds.submit_cases(cases)
    rounds.run()
    assert [rounds.tokens(i) for i in range(4)] == [output for _, output in cases]


def test_the_end_of_text_ends_a_row_and_its_seat_is_held(folder: Path, runner: Any, reference: Reference) -> None:
    (prompt, output), other = reference.cases([(6, 12), (3, 12)])
    stop = output[5]
    expected = output[: output.index(stop) + 1]
    rounds = Rounds(folder, runner)
    rounds.submit("stops", prompt, 12, stop_token_ids=(stop,))
    rounds.submit("other", other[0], 12)
    rounds.run()
    assert rounds.tokens("stops") == expected
    assert rounds.tokens("other") == other[1]
    phases = [{row.sequence_id: row.phase for row in record.rows}["stops"] for record in rounds.records]
    assert phases == ["prefill"] + ["decode"] * (len(expected) - 1) + ["held"] * (12 - len(expected))


def test_the_folders_own_generation_defaults_change_nothing(
    folder: Path, tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everystep.runner.generate import GenerateRunner

    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    defaults = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 3.0, "eos_token_id": list(range(40))}
    (tmp_path / "generation_config.json").write_text(json.dumps(defaults))
    cases = reference.cases([(6, 12), (3, 12)])
    runner = GenerateRunner(tmp_path, precision="f32", num_threads=1)
    rounds = Rounds(tmp_path, runner)
    rounds.submit_cases(cases)
    with Calls().watched(monkeypatch) as calls:
        rounds.run()
    runner.close()
    assert [rounds.tokens(i) for i in range(2)] == [output for _, output in cases]
    (config,) = calls.configs
    assert (config.do_sample, config.eos_token_id, config.max_new_tokens) == (False, None, 12)
