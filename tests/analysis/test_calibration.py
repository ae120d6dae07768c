"""The calibration file: there and back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.cost_steps import PRICES
from everystep.analysis.calibration import Calibration, FitFigures, load_calibration, save_calibration
from everystep.analysis.load import closed
from everystep.analysis.simulator import simulate
from everystep.config import Settings
from everystep.errors import ConfigError


def made(**changes: Any) -> Calibration:
    quantiles = {"p1": -0.1, "p5": -0.05, "p50": 0.0, "p95": 0.05, "p99": 0.1}
    fields: dict[str, Any] = {
        "model": "smollm2-135m",
        "runner": "openvino",
        "precision": "int8",
        "num_threads": 2,
        "block_size": 32,
        "num_blocks": 1456,
        "kv_block_bytes": 1_474_560,
        "max_model_len": 8192,
        "batch": {"static_batch_size": 3, "max_num_seqs": 32, "max_num_batched_tokens": 256, "queue_timeout": None},
        "coefficients": PRICES,
        "fit": FitFigures(
            num_steps=400, num_outliers=2, r_squared=0.998, residual_s=quantiles, relative_residual=quantiles
        ),
        "submit_s": 0.002,
        "deliver_s": 0.001,
        "environment": {"cpu": "a machine"},
    }
    return Calibration(**(fields | changes))


def written(tmp_path: Path, change: dict[str, Any]) -> Path:
    save_calibration(made(), tmp_path / "c.json")
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(json.loads((tmp_path / "c.json").read_text()) | change))
    return path


def test_a_calibration_comes_back_from_its_file_as_it_went(tmp_path: Path) -> None:
    save_calibration(made(), tmp_path / "deep" / "calibration.json")
    assert load_calibration(tmp_path / "deep" / "calibration.json") == made()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema 2 isn't 1"),
        ({"speed": 3}, "speed"),
        ({"num_blocks": "many"}, "num_blocks"),
        ({"coefficients": {**PRICES, "step": -1.0}}, "step=-1.0"),
        ({"coefficients": {"step": 0.1}}, "lacking"),
        ({"batch": {"max_num_seqs": 0}}, "max_num_seqs"),
        ({"batch": {"num_wheels": 4}}, "num_wheels"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = written(tmp_path, change)
    with pytest.raises(ConfigError, match=words) as caught:
        load_calibration(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("content", ["", "[1, 2]", "{", "\u00e9"])
def test_what_is_no_calibration_at_all_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"c\.json"):
        load_calibration(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_calibration(tmp_path / "nowhere.json")


def test_the_servers_settings_come_with_it() -> None:
    settings = made().settings()
    assert (settings.static_batch_size, settings.max_num_seqs, settings.max_num_batched_tokens) == (3, 32, 256)


def test_a_what_if_changes_the_cache_by_whole_blocks_and_the_context_downwards_only() -> None:
    one = made()
    assert one.machine(Settings(kv_cache_gib=1.0)).num_blocks == 2**30 // 1_474_560
    assert one.machine(Settings(max_model_len=100)).max_model_len == 100
    with pytest.raises(ConfigError, match="max_model_len=8193 is over the 8192"):
        one.machine(Settings(max_model_len=8193))
    assert one.machine(Settings(kv_cache_gib=1.0), num_blocks=7).num_blocks == 7


def test_simulating_a_load_twice_on_one_machine_gives_the_same_twice() -> None:
    machine, settings = made().machine(), made().settings()
    walls = [simulate(closed(10, 5, 9), settings, policy, machine).wall_s for policy in ("static", "per_token") * 2]
    assert walls[:2] == walls[2:]


def test_submit_and_deliver_lie_before_and_behind_the_steps() -> None:
    bare, whole = made(submit_s=0.0, deliver_s=0.0), made()
    (without,), (with_both,) = (
        simulate(closed(1, 5, 9), one.settings(), "continuous", one.machine()).answers for one in (bare, whole)
    )
    assert with_both.ttft_s - without.ttft_s == pytest.approx(0.003)
    assert with_both.tpot_s == pytest.approx(without.tpot_s)
