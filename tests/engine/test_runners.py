"""Which runner a server gets, and which options it refuses."""

import json
import shutil
from pathlib import Path

import pytest

from everystep.checkpoint import open_checkpoint
from everystep.config import Settings
from everystep.engine import runners
from everystep.engine.runners import check_settings, choose_runner
from everystep.errors import EngineUnavailable, UnsupportedModel, UnsupportedOption

TINY = Path(__file__).parent.parent / "golden" / "tiny" / "llama"


@pytest.fixture
def llama(tmp_path):
    return open_checkpoint(str(TINY), tmp_path)


@pytest.fixture
def foreign(tmp_path):
    """A sound folder of a family that has no graph of ours."""
    folder = tmp_path / "gemma"
    shutil.copytree(TINY, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gemma2"}))
    return open_checkpoint(str(folder), tmp_path)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Says whether torch and a GPU are there."""

    def set_up(*, torch, gpu=False):
        mark = tmp_path / "gpu"
        if gpu:
            mark.touch()
        monkeypatch.setattr(runners, "has_torch", lambda: torch)
        monkeypatch.setattr(runners, "GPU_MARK", mark)

    return set_up


def test_auto_is_openvino_on_a_machine_without_a_gpu(llama, machine):
    machine(torch=True)
    assert choose_runner(Settings(), llama) == "openvino"


def test_auto_is_torch_on_a_machine_with_a_gpu_and_torch(llama, machine):
    machine(torch=True, gpu=True)
    assert choose_runner(Settings(), llama) == "torch"


@pytest.mark.parametrize("given", [{"device": "cpu"}, {"deterministic": True}, {"precision": "int8"}])
def test_auto_stays_with_openvino_for_what_torch_on_a_gpu_does_not_do(llama, machine, given):
    machine(torch=True, gpu=True)
    assert choose_runner(Settings(**given), llama) == "openvino"


def test_auto_takes_torch_for_a_family_without_a_graph(foreign, machine):
    machine(torch=True)
    assert choose_runner(Settings(), foreign) == "torch"


def test_a_family_without_a_graph_names_the_command_that_brings_torch(foreign, machine):
    machine(torch=False)
    with pytest.raises(UnsupportedModel, match=r"'gemma2'.*--runner torch.*pip install 'everystep\[torch\]'"):
        choose_runner(Settings(), foreign)


def test_a_named_runner_is_not_replaced_by_another(foreign, machine):
    machine(torch=True)
    with pytest.raises(UnsupportedModel, match="'gemma2'"):
        choose_runner(Settings(runner="openvino"), foreign)


@pytest.mark.parametrize("runner", ["torch", "hf-generate"])
def test_a_runner_whose_libraries_are_absent_is_refused_before_anything_starts(machine, runner):
    machine(torch=False)
    with pytest.raises(EngineUnavailable, match=rf"runner='{runner}' needs torch and transformers"):
        check_settings(Settings(runner=runner))


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"runner": "torch", "deterministic": True}, "deterministic"),
        ({"runner": "torch", "precision": "int8"}, "precision"),
        ({"runner": "hf-generate", "precision": "int4"}, "precision"),
        ({"runner": "openvino", "device": "cuda"}, "device"),
        ({"runner": "hf-generate", "device": "cpu"}, "device"),
        ({"runner": "openvino", "gpu_memory_utilization": 0.5}, "gpu_memory_utilization"),
        ({"vllm_python": Path("/x"), "vllm_url": "http://h"}, "vllm_url"),
        ({"runner": "hf-generate", "default_policy": "continuous"}, "default_policy"),
        ({"runner": "vllm", "default_policy": "static"}, "default_policy"),
    ],
)
def test_an_option_that_the_runner_does_not_have_is_refused_by_name(machine, given, param):
    machine(torch=True)
    with pytest.raises(UnsupportedOption) as caught:
        check_settings(Settings(**given))
    assert caught.value.param == param


def test_the_gpu_share_may_be_meant_for_a_vllm_beside_our_lanes():
    check_settings(Settings(runner="openvino", gpu_memory_utilization=0.5, vllm_python=Path("/x")))


def test_offline_vllm_is_refused(llama):
    with pytest.raises(UnsupportedOption, match="vLLM's own LLM"):
        runners.build_runner(Settings(runner="vllm"), llama)
