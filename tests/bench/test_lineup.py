"""Who contends: flags handed on, peers looked for, and one line for each that is absent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from everystep.bench.passes import BenchFailed
from everystep.bench.peers.everystep_server import clean_environment, running
from everystep.bench.peers.genai import is_readable_by_genai
from everystep.bench.peers.installed import look
from everystep.bench.peers.lineup import lined_up
from everystep.bench.peers.process_tree import cpu_s, descendants
from everystep.bench.peers.roster import Lineup
from everystep.bench.peers.server_flags import server_flags
from everystep.bench.peers.targets import key_of, parse_target, with_key
from everystep.config import Settings
from everystep.errors import ConfigError


def test_only_what_isnt_a_default_is_handed_on_to_a_server() -> None:
    settings = Settings(max_num_seqs=128, prefix_cache=False, kv_cache_gib=0.5, port=9000, api_key=("secret",))
    assert server_flags(settings) == ["--kv-cache-gib=0.5", "--max-num-seqs=128", "--no-prefix-cache"]


def test_a_peer_isnt_given_what_was_chosen_for_our_own_lanes() -> None:
    settings = Settings(precision="int8", runner="openvino", static_batch_size=8, vllm_python=Path("x"))
    assert server_flags(settings, without={"runner", "precision"}) == ["--static-batch-size=8"]
    assert "--vllm-python=x" in server_flags(settings, with_vllm=True)


def test_a_key_is_never_a_flag_since_everybody_can_read_those() -> None:
    settings = Settings(vllm_url="http://there", vllm_api_key="secret", api_key=("secret",), api_key_file=Path("keys"))
    assert server_flags(settings, with_vllm=True) == ["--vllm-url=http://there"]
    assert server_flags(Settings(insecure_no_auth=True)) == []


def test_a_url_that_would_carry_a_password_into_the_results_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target("mine=http://user:hunter2@there:80/v1")
    assert "hunter2" not in caught.value.message
    assert parse_target("mine=http://there:80/@v1").url == "http://there:80/@v1"


def test_one_key_is_every_urls_and_of_several_each_is_the_urls_in_its_place() -> None:
    one, two = SecretStr("one"), SecretStr("two")
    assert [key_of((), place) for place in range(2)] == [None, None]
    assert [key_of((one,), place) for place in range(3)] == [one, one, one]
    assert [key_of((one, two), place) for place in range(3)] == [one, two, two]
    assert with_key(two) == {"Authorization": "Bearer two"}
    assert with_key(None) == {}


def test_a_setting_of_the_clients_environment_tunes_nobody() -> None:
    assert clean_environment({"EVERYSTEP_PRECISION": "f32", "HOME": "/h"}) == {"HOME": "/h"}


def test_a_python_tells_what_it_has_and_what_it_lacks() -> None:
    found = look(sys.executable, ("httpx", "no_such_library"))
    assert found.versions.keys() == {"httpx"}
    assert found.missing == f"{sys.executable} has no no_such_library"


def test_a_python_that_isnt_one_is_a_line_and_no_traceback(tmp_path: Path) -> None:
    found = look(str(tmp_path / "python"), ("torch",))
    assert found.missing.endswith("can't be asked: FileNotFoundError")


async def test_absent_peers_are_left_out_in_one_line_each_and_with_nobody_left_that_is_the_error(
    tmp_path: Path,
) -> None:
    nowhere = str(tmp_path / "python")
    settings = Settings(vllm_python=Path(nowhere))
    lineup = Lineup(
        settings, (), ("hf-generate", "vllm", "openvino-genai"), tmp_path, torch_python=nowhere, genai_python=nowhere
    )
    said: list[str] = []
    with pytest.raises(BenchFailed, match="nobody is left to measure: hf-generate isn't measured"):
        async with lined_up(lineup, said.append):
            pass
    assert said == []


def test_genai_reads_gguf_and_ir_folders(tmp_path: Path) -> None:
    assert is_readable_by_genai(Path("a.gguf"))
    assert not is_readable_by_genai(tmp_path)
    (tmp_path / "openvino_model.xml").touch()
    assert is_readable_by_genai(tmp_path)


async def test_a_server_that_doesnt_start_fails_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with pytest.raises(BenchFailed, match=r"static didn't start \(status 1\): everystep: .*no-such-model"):
        async with running(sys.executable, ["--model", str(tmp_path / "no-such-model.gguf")], log, "static"):
            pass


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_process_stands_in_its_own_tree_and_has_used_a_cpu() -> None:
    import os

    assert descendants(os.getpid())[0] == os.getpid()
    assert cpu_s(os.getpid()) > 0
