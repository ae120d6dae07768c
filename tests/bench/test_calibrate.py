"""A calibration: the loads it drives, lone requests, the quiet of the machine, what is refused, predictions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from analysis.cost_steps import PRICES
from analysis.test_calibration import made
from everystep.analysis.calibration import save_calibration
from everystep.analysis.load import Arrival, closed
from everystep.analysis.round_law import Round, round_law_s
from everystep.analysis.simulator import simulate
from everystep.bench.calibrate_command import check_alone
from everystep.bench.calibrate_loads import NOMINAL_TOKENS_PER_S, Limits, Portion, portions
from everystep.bench.calibrate_lone import Lone, ask_alone, clock_offset_s, overheads
from everystep.bench.calibrate_predict import predictor
from everystep.bench.calibrate_quiet import machine_cpu_s, words
from everystep.bench.calibrate_tables import cost_table, fit_lines, prediction_table
from everystep.bench.passes import BenchFailed
from everystep.bench.peers.targets import Target
from everystep.config import Settings
from everystep.errors import ConfigError

LANES = ("static", "per_token", "continuous")


def all_portions(limits: Limits, policies: tuple[str, ...] = LANES) -> list[Portion]:
    return list(portions(policies, limits, random.Random(0)))


def limits(seats: int = 64, context: int = 8192, speed: float = 1.0) -> Limits:
    return Limits(seats, context, speed * NOMINAL_TOKENS_PER_S)


def step(number: int, start_s: float, end_s: float, num_rows: int = 1, new_tokens: int = 1) -> dict[str, Any]:
    return {"step": number, "start_s": start_s, "end_s": end_s, "rows": [{"new_tokens": new_tokens}] * num_rows}


# --- loads ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seats", [1, 4, 64, 256])
def test_the_loads_fill_every_seat_and_use_every_lane(seats: int) -> None:
    found = all_portions(limits(seats))
    assert max(len(one.load) for one in found if one.name == "wide decode") == seats
    assert {one.policy for one in found} == set(LANES)


@pytest.mark.parametrize("context", [2, 16, 100, 8192])
@pytest.mark.parametrize("speed", [0.01, 0.3, 1.0, 30.0])
def test_every_request_fits_the_context(context: int, speed: float) -> None:
    for one in all_portions(limits(context=context, speed=speed)):
        for arrival in one.load:
            assert arrival.prompt_tokens >= 1
            assert arrival.output_tokens >= 1
            assert arrival.prompt_tokens + arrival.output_tokens <= context


def test_a_slow_machine_gets_less_to_do_and_a_quick_one_a_quicker_stream() -> None:
    def tokens(one: list[Portion]) -> int:
        return sum(arrival.prompt_tokens for portion in one for arrival in portion.load)

    slow, nominal, quick = (all_portions(limits(speed=speed)) for speed in (0.25, 1.0, 8.0))
    assert tokens(slow) < 0.35 * tokens(nominal)
    assert tokens(quick) == tokens(nominal)
    spans = [next(one.load[-1].at_s for one in each if one.name == "arrivals") for each in (nominal, quick)]
    assert spans[0] == pytest.approx(8 * spans[1])


def test_a_server_with_the_static_lane_alone_is_driven_through_it() -> None:
    found = all_portions(limits(seats=4), ("static",))
    assert {one.policy for one in found} == {"static"}
    assert len(found) > 5


# --- lone requests -------------------------------------------------------------------------------
def test_what_lies_outside_of_steps_is_counted_as_by_hand() -> None:
    steps = (step(0, 10.004, 10.054, new_tokens=8), step(1, 10.055, 10.075), step(2, 10.076, 10.096))
    lone = Lone(10.0, (10.058, 10.079, 10.1), steps)
    assert lone.submit_s == pytest.approx(0.004)
    assert lone.deliver_s == pytest.approx(0.003)  # 4 ms after the step's end, 1 of which the worker took as well
    assert lone.tokens_per_s == pytest.approx(8 / 0.05)


def test_overheads_are_medians_and_never_below_zero() -> None:
    steps = (step(0, 1.0, 1.1), step(1, 1.1, 1.2))
    lone = [Lone(sent_s, (1.1 + later_s,), steps) for sent_s, later_s in ((0.9, -0.2), (0.99, -0.1), (0.98, 0.1))]
    found = overheads(lone)
    assert found.submit_s == pytest.approx(0.02)
    assert found.deliver_s == 0.0


async def test_the_clients_clock_is_set_by_the_servers() -> None:
    import time

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"now_s": time.monotonic() - 1000.0})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://fake") as http:
        assert await clock_offset_s(http) == pytest.approx(-1000.0, abs=1.0)


async def test_a_server_that_has_other_clients_is_not_calibrated() -> None:
    chunk = {"choices": [{"index": 0, "text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}
    body = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    pages = iter([{"steps": [], "next": 3}, {"steps": [step(4, 0, 1, 2) | {"policy": "static"}], "next": 4}])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/steps":
            return httpx.Response(200, json=next(pages, {"steps": [], "next": 4}))
        return httpx.Response(200, stream=httpx.ByteStream(body))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://fake") as http:
        with pytest.raises(BenchFailed, match="other clients"):
            await ask_alone(http, "m", "static", [5, 6], 1, 0.0)


# --- the machine ---------------------------------------------------------------------------------
def test_idle_time_and_waiting_for_disks_are_no_work_and_stolen_time_is() -> None:
    stat = "cpu  100 20 30 99999 4000 5 6 7 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"
    import os

    assert machine_cpu_s(stat) == pytest.approx((100 + 20 + 30 + 5 + 6 + 7) / os.sysconf("SC_CLK_TCK"))


def test_other_work_is_said_where_it_matters() -> None:
    assert words(None) == []
    assert words(0.02) == []
    assert "0.40 cores" in words(0.4)[0]


# --- the command ---------------------------------------------------------------------------------
@pytest.mark.parametrize(("extra", "flag"), [("sizes", "-n"), ("rate", "--rate"), ("calibration", "--calibration")])
def test_a_flag_that_would_do_nothing_is_refused_beside_calibrate(extra: str, flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag} doesn't go with it"):
        check_alone({"calibrate", "out", "model", extra})


def test_a_servers_settings_go_with_calibrate() -> None:
    check_alone({"calibrate", "out", "urls", "seed", "as_json", "threads", "max_num_seqs"})


# --- predictions ---------------------------------------------------------------------------------
def test_a_load_is_predicted_by_simulating_it_and_only_for_our_own_lanes(tmp_path: Path) -> None:
    save_calibration(made(), tmp_path / "c.json")
    settings = Settings(static_batch_size=2)
    predict = predictor(tmp_path / "c.json", settings, ())
    load = closed(5, 6, 20)
    assert (
        predict("everystep", "static", load)
        == simulate(load, settings, "static", made().machine(is_one_request=True)).wall_s
    )
    assert predict("hf-generate", "static", load) is None
    assert predict("everystep", "vllm", load) is None
    law_s = round_law_s(5, made().cost, Round(2, 6, 20)) + 0.003
    assert predict.round_law_s("everystep", "static", load) == pytest.approx(law_s)
    assert predict.round_law_s("everystep", "continuous", load) is None
    assert predict.round_law_s("everystep", "static", [Arrival(0.0, 6, 20), Arrival(0.0, 7, 20)]) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "another"}, "model=smollm2-135m, this benchmark has another"),
        ({"precision": "f32"}, "precision=int8"),
        ({"threads": 1}, "num_threads=2"),
    ],
)
def test_a_calibration_of_another_engine_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    save_calibration(made(), tmp_path / "c.json")
    with pytest.raises(ConfigError, match=words):
        predictor(tmp_path / "c.json", Settings(**changes), ())


def test_a_server_that_runs_is_simulated_with_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_calibration(made(), tmp_path / "c.json")
    facts = {"model": "smollm2-135m", "runner": "openvino", "precision": "int8", "num_threads": 2, "block_size": 32,
             "num_blocks": 900, "max_model_len": 512, "settings": {"static_batch_size": 8}}  # fmt: skip
    monkeypatch.setattr(httpx, "get", lambda url, **kwargs: httpx.Response(200, json=facts))
    predict = predictor(tmp_path / "c.json", Settings(), (Target("http://there:1"),))
    one_round = predict("everystep", "static", closed(8, 6, 20))
    two_rounds = predict("everystep", "static", closed(9, 6, 20))
    assert one_round is not None
    assert two_rounds is not None
    assert two_rounds > 1.2 * one_round
    monkeypatch.setattr(httpx, "get", lambda url, **kwargs: httpx.Response(200, json=facts | {"precision": "f32"}))
    with pytest.raises(ConfigError, match=r"http://there:1 has f32"):
        predictor(tmp_path / "c.json", Settings(), (Target("http://there:1"),))


# --- words ---------------------------------------------------------------------------------------
def test_a_reader_sees_every_price_that_is_paid_with_its_unit() -> None:
    rows = {name: price for name, price, _ in cost_table(made()).rows}
    assert rows["step"] == "18.0 ms"
    assert rows["context"] == "5.00 µs"
    assert set(rows) == {name for name, price in PRICES.items() if price > 0}
    assert any("R² 0.9980" in line for line in fit_lines(made()))


def test_predictions_stand_beside_what_was_measured() -> None:
    run = {"label": "static 4", "n": 16, "rate": None, "wall_s": 2.0, "predicted_wall_s": 2.1, "round_law_s": 2.2}
    other = {"label": "vLLM", "n": 16, "rate": None, "wall_s": 1.0, "predicted_wall_s": None}
    table = prediction_table({"runs": [run, other]})
    assert table is not None
    assert table.rows == (("static 4", "N = 16", "2.00", "2.10", "+5.0%", "2.20"),)
    assert prediction_table({"runs": [other]}) is None
