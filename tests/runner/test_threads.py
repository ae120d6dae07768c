"""The CPUs that a process may use, from trees of cgroup files as kernels lay them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everystep.runner.threads import cpu_features, cpu_name, usable_cpus


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def cpus(root: Path, affinity: int = 16) -> int:
    return usable_cpus(affinity, proc=root / "proc", cgroup=root / "cgroup")


def test_without_any_cgroup_file_affinity_counts(tmp_path: Path) -> None:
    assert cpus(tmp_path, affinity=6) == 6


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("max 100000", 16),
        ("400000 100000", 4),
        ("250000 100000", 2),  # two whole CPUs: a third thread would be stopped half the time
        ("50000 100000", 1),
        ("20000 10000", 2),
        ("3200000 100000", 16),
    ],
)
def test_a_quota_of_version_2_limits_from_the_own_group(tmp_path: Path, cpu_max: str, expected: int) -> None:
    tree(tmp_path, {"proc/self/cgroup": "0::/srv/pod\n", "cgroup/srv/pod/cpu.max": f"{cpu_max}\n"})
    assert cpus(tmp_path) == expected


def test_the_least_quota_on_the_way_up_rules(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b/c\n",
        "cgroup/a/cpu.max": "200000 100000\n",
        "cgroup/a/b/cpu.max": "max 100000\n",
        "cgroup/a/b/c/cpu.max": "800000 100000\n",
    }
    assert cpus(tree(tmp_path, files)) == 2


def test_inside_a_container_the_mount_is_the_own_group(tmp_path: Path) -> None:
    """With a cgroup namespace the own path is ``/``."""
    tree(tmp_path, {"proc/self/cgroup": "0::/\n", "cgroup/cpu.max": "300000 100000\n"})
    assert cpus(tmp_path) == 3


def test_in_a_container_that_sees_its_path_on_the_host_the_mount_still_counts(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/self/cgroup": "0::/docker/4f2a\n", "cgroup/cpu.max": "300000 100000\n"})
    assert cpus(tmp_path) == 3


@pytest.mark.parametrize(("quota", "expected"), [("-1", 16), ("500000", 5), ("150000", 1)])
@pytest.mark.parametrize("mount", ["cpu", "cpu,cpuacct"])
def test_a_quota_of_version_1_limits(tmp_path: Path, quota: str, expected: int, mount: str) -> None:
    files = {
        "proc/self/cgroup": "12:memory:/pod\n4:cpu,cpuacct:/pod\n1:name=systemd:/pod\n",
        f"cgroup/{mount}/pod/cpu.cfs_quota_us": f"{quota}\n",
        f"cgroup/{mount}/pod/cpu.cfs_period_us": "100000\n",
    }
    assert cpus(tree(tmp_path, files)) == expected


def test_a_memory_group_of_version_1_is_not_mistaken_for_a_cpu_group(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "12:memory:/pod\n7:cpuset:/pod\n",
        "cgroup/cpuset/pod/cpu.cfs_quota_us": "100000\n",
        "cgroup/cpuset/pod/cpu.cfs_period_us": "100000\n",
    }
    assert cpus(tree(tmp_path, files)) == 16


def test_affinity_of_this_process_is_the_default(tmp_path: Path) -> None:
    assert usable_cpus(proc=tmp_path, cgroup=tmp_path) == len(os.sched_getaffinity(0))


def test_features_and_name_are_those_of_the_first_cpu(tmp_path: Path) -> None:
    cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.0GHz\nflags\t\t: sse4_1 avx2 avx512_vnni\n\nprocessor\t: 1\n"
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert cpu_features(tmp_path) == {"sse4_1", "avx2", "avx512_vnni"}
    assert cpu_name(tmp_path) == "Some CPU @ 2.0GHz"


def test_where_nothing_is_known_of_the_cpu_it_has_no_features(tmp_path: Path) -> None:
    assert cpu_features(tmp_path) == frozenset()
    assert cpu_name(tmp_path) == "unknown"
