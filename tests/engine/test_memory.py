"""The cache is as large as memory allows or the seats can fill, whichever is less."""

import pytest

from everystep.engine import memory
from everystep.engine.memory import available_bytes, host_cache_bytes, num_kv_blocks
from everystep.errors import ConfigError

SIZES = {"block_bytes": 1024, "block_size": 32, "num_seats": 4, "max_model_len": 100}


def make_proc(tmp_path, available_kib):
    (tmp_path / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:   {available_kib} kB\n")
    return tmp_path


def test_seats_that_fill_less_than_memory_bound_the_cache():
    # 100 tokens are 4 blocks of 32; 4 seats fill 16
    assert num_kv_blocks(kv_cache_gib=None, budget_bytes=10**9, **SIZES) == 16


def test_memory_that_is_scarcer_than_the_seats_bounds_the_cache():
    assert num_kv_blocks(kv_cache_gib=None, budget_bytes=10 * 1024 + 1023, **SIZES) == 10


def test_an_explicit_size_is_taken_as_it_is():
    assert num_kv_blocks(kv_cache_gib=1 / 1024, budget_bytes=0, **SIZES) == 1024


def test_an_explicit_size_that_holds_no_two_blocks_is_refused_with_the_numbers():
    with pytest.raises(ConfigError, match=r"holds 1 blocks of 1024 bytes"):
        num_kv_blocks(kv_cache_gib=1.5 / 2**20, budget_bytes=10**9, **SIZES)


def test_no_memory_at_all_is_refused():
    with pytest.raises(ConfigError, match="1024 bytes are left for the KV cache"):
        num_kv_blocks(kv_cache_gib=None, budget_bytes=1024, **SIZES)


def test_half_of_what_is_free_is_left_to_others(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2001)
    assert host_cache_bytes() == 1000


def test_free_memory_is_read_from_meminfo(tmp_path):
    proc = make_proc(tmp_path, 2048)
    assert available_bytes(proc, tmp_path / "no-cgroup") == 2048 * 1024


@pytest.mark.parametrize(
    ("limit_name", "usage_name"),
    [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")],
)
def test_a_cgroup_that_allows_less_rules(tmp_path, limit_name, usage_name):
    proc = make_proc(tmp_path, 2048)
    cgroup = tmp_path / "cgroup"
    (cgroup / limit_name).parent.mkdir(parents=True)
    (cgroup / limit_name).write_text("1000000\n")
    (cgroup / usage_name).write_text("400000\n")
    assert available_bytes(proc, cgroup) == 600000


def test_an_unlimited_cgroup_changes_nothing(tmp_path):
    proc = make_proc(tmp_path, 2048)
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text("400000\n")
    assert available_bytes(proc, cgroup) == 2048 * 1024
