"""Each family's graph computes what transformers computed: tokens and logits of the golden files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from everystep.runner.openvino_runner import OpenVINORunner
from runner.plan_by_hand import FAMILIES, Desk, golden_cases, tiny_runner

WHOLE = 10_000


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runner(family: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVINORunner]:
    runner = tiny_runner(family, tmp_path_factory.mktemp("cache"))
    yield runner
    runner.close()


@pytest.fixture
def desk(runner: OpenVINORunner) -> Desk:
    """All blocks free again, and full of what the test before left there."""
    return Desk(runner)


@pytest.mark.parametrize("chunk", [WHOLE, 16])
def test_logits_agree_with_transformers(desk: Desk, family: str, chunk: int) -> None:
    cases = [case for case in golden_cases(family) if "logits" in case]
    assert cases
    for case in cases:
        logits = desk.logits(case["prompt_token_ids"], chunk)
        expected = case["logits"]
        np.testing.assert_allclose(logits[expected["token_ids"]], expected["values"], atol=1e-3, rtol=0)


@pytest.mark.parametrize("chunk", [WHOLE, 16])
def test_all_prompts_in_one_batch_get_the_tokens_each_gets_alone(desk: Desk, family: str, chunk: int) -> None:
    cases = golden_cases(family)
    outputs = desk.generate([case["prompt_token_ids"] for case in cases], 24, chunk)
    assert outputs == [case["output_token_ids"] for case in cases]


def test_one_prompt_alone_gets_its_tokens(desk: Desk, family: str) -> None:
    for case in golden_cases(family)[5::7]:
        assert desk.generate([case["prompt_token_ids"]], 24, WHOLE) == [case["output_token_ids"]]


def test_a_resumed_sequence_reads_prompt_and_output_again_and_goes_on(desk: Desk, family: str) -> None:
    """Preemption by recompute: all tokens known so far come as one chunk, into other blocks."""
    case = golden_cases(family)[11]
    prompt, output = case["prompt_token_ids"], case["output_token_ids"]
    sequence = desk.sequence(prompt + output[:9], 24)
    while sequence.num_tokens < len(prompt) + 24:
        desk.step((sequence, sequence.num_uncomputed_tokens))
    assert sequence.token_ids == prompt + output
