"""The offline LLM on the fake runner: order, choices, seeds, errors in one line."""

import signal
from pathlib import Path

import pytest

from everystep import LLM, SamplingParams
from everystep.errors import (
    ConfigError,
    EngineFailed,
    EngineUnavailable,
    InvalidParameter,
    InvalidRequest,
    PromptTooLong,
    UnsupportedOption,
)
from everystep.runner.fake import FakeRunner, generate

TINY_MODEL = Path(__file__).parent / "golden" / "tiny" / "llama"
VOCAB = 384


@pytest.fixture
def llm(tmp_path):
    settings = {"cache_dir": tmp_path, "kv_cache_gib": 0.001}
    with LLM(str(TINY_MODEL), make_runner=lambda: FakeRunner(vocab_size=VOCAB), **settings) as llm:
        yield llm


@pytest.mark.parametrize("policy", ["static", "per_token", "continuous"])
def test_answers_come_in_the_order_of_the_prompts_from_every_lane_and_every_call(llm, policy):
    prompts = [[i, i + 1] for i in range(3, 12)]
    for _ in range(2):
        outs = llm.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True), policy=policy)
        assert [list(out.token_ids) for out in outs] == [generate(prompt, 6, VOCAB) for prompt in prompts]
        assert {out.finish_reason for out in outs} == {"length"}


def test_a_prompt_may_be_text_one_list_of_ids_or_several_prompts(llm):
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    (text,) = llm.generate("Hello", params)
    (ids,) = llm.generate(list(text.prompt_token_ids), params)
    assert text.token_ids == ids.token_ids
    assert text.prompt == "Hello"
    assert llm.generate([], params) == []


def test_each_choice_of_a_prompt_is_there(llm):
    (out,) = llm.generate([[5, 6]], SamplingParams(max_tokens=3, n=3, ignore_eos=True))
    assert len(out.choices) == 3
    assert out.token_ids == out.choices[0].token_ids


@pytest.mark.parametrize("prompt", [[5, "6"], [5, 1.0], [5, True], [5, VOCAB], [5, -1], None])
def test_what_is_no_prompt_is_refused_by_what_is_wrong_with_it(llm, prompt):
    with pytest.raises(InvalidRequest):
        llm.generate([prompt])


def test_a_prompt_that_can_never_fit_is_refused_before_anything_runs(llm):
    with pytest.raises(PromptTooLong, match="max_tokens=1000 but the prompt leaves room"):
        llm.generate([[1, 2]], SamplingParams(max_tokens=1000))


def test_a_closed_llm_says_so_instead_of_touching_freed_memory(llm):
    llm.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        llm.generate([[1, 2]])
    llm.close()


@pytest.mark.parametrize("wrong", [{"foo": 1}, {"policy": "x"}, {"precision": "x"}, {"max_num_seqs": 0}])
def test_wrong_settings_are_one_line(wrong, tmp_path):
    with pytest.raises(ConfigError) as caught:
        LLM(str(TINY_MODEL), cache_dir=tmp_path, **wrong)
    assert "\n" not in caught.value.message
    assert "http" not in caught.value.message


def test_tracing_which_only_a_server_does_is_refused(tmp_path):
    with pytest.raises(UnsupportedOption, match="otel") as caught:
        LLM(str(TINY_MODEL), cache_dir=tmp_path, otel=True)
    assert caught.value.param == "otel"


class StaticOnlyRunner(FakeRunner):
    """As hf-generate, which serves rounds and nothing else."""

    lanes = ("static",)


def test_a_runner_with_one_lane_serves_it_unasked_and_refuses_others(tmp_path):
    with LLM(str(TINY_MODEL), make_runner=lambda: StaticOnlyRunner(vocab_size=384), cache_dir=tmp_path) as llm:
        assert set(llm.info.seats) == {"static"}
        (out,) = llm.generate(["x"], SamplingParams(max_tokens=3, ignore_eos=True))
        assert len(out.token_ids) == 3
        with pytest.raises(InvalidParameter, match="policy='continuous' must be one of static"):
            llm.generate(["x"], policy="continuous")


class Disturbed(FakeRunner):
    """Raises, or is interrupted as by Ctrl-C, in its third pass: keys and values of that pass are written by then."""

    def __init__(self, disturb):
        super().__init__(vocab_size=VOCAB)
        self.disturb = disturb
        self.is_repeatable = False

    def run(self, plan):
        result = super().run(plan)
        if self.num_steps == 3:
            self.disturb()
        return result


def fail():
    raise RuntimeError("the kernel is broken")


@pytest.fixture(autouse=True)
def ctrl_c_is_python_s_own():
    """A shell's background job is started with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("policy", ["static", "per_token", "continuous"])
@pytest.mark.parametrize(("disturb", "expected"), [(fail, EngineFailed), (press_ctrl_c, KeyboardInterrupt)])
def test_after_a_failed_pass_or_ctrl_c_nothing_is_left_and_the_next_call_is_served(tmp_path, policy, disturb, expected):
    runner = Disturbed(disturb)
    with LLM(str(TINY_MODEL), make_runner=lambda: runner, cache_dir=tmp_path, kv_cache_gib=0.001) as llm:
        params = SamplingParams(max_tokens=6, ignore_eos=True)
        with pytest.raises(expected):
            llm.generate([[i, i + 1] for i in range(9)], params, policy=policy)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert not llm.core.has_work()
        assert llm.core.pool.num_used_blocks == 0
        llm.core.pool.check(owners=())
        assert llm.observer.metrics.num_open(seated=True) == llm.observer.metrics.num_open(seated=False)
        (out,) = llm.generate([[7, 8]], params, policy=policy)
        assert list(out.token_ids) == generate([7, 8], 6, VOCAB)


def test_ctrl_c_while_a_round_waits_for_company_is_heeded_though_nothing_runs(tmp_path):
    settings = {"static_max_wait": 600.0, "cache_dir": tmp_path, "kv_cache_gib": 0.001}
    with LLM(str(TINY_MODEL), make_runner=lambda: FakeRunner(vocab_size=VOCAB), **settings) as llm:
        next_ready_s = llm.core.next_ready_s

        def pressed():
            press_ctrl_c()
            return next_ready_s()

        llm.core.next_ready_s = pressed
        with pytest.raises(KeyboardInterrupt):
            llm.generate([[7, 8]], policy="static")
        llm.core.next_ready_s = next_ready_s
        assert not llm.core.has_work()
