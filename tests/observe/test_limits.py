"""What the server is set to is told under names of its own, that of the engine once there is one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from everystep.config import Settings
from everystep.messages import EngineInfo
from everystep.observe.limits import Limits

INFO = EngineInfo("smollm2-135m", "openvino", "int8", 2, 16, 100, 4096, 2048, {"static": 4, "continuous": 64}, {})


def values(info: EngineInfo | None, **settings: float) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Limits(Settings(**settings), info))
    return registry


def test_each_bound_is_the_option_s_value() -> None:
    told = values(None, max_queue=7, max_queue_tokens=900, max_connections=50, stall_timeout=12.5)
    assert told.get_sample_value("everystep_max_queue_requests") == 7
    assert told.get_sample_value("everystep_max_queue_tokens") == 900
    assert told.get_sample_value("everystep_max_http_connections") == 50
    assert told.get_sample_value("everystep_stall_timeout_seconds") == 12.5


def test_seats_and_cache_are_told_once_the_engine_is_there() -> None:
    assert values(None).get_sample_value("everystep_kv_cache_blocks") is None
    told = values(INFO)
    assert told.get_sample_value("everystep_seats", {"policy": "continuous"}) == 64
    assert told.get_sample_value("everystep_seats", {"policy": "static"}) == 4
    assert told.get_sample_value("everystep_kv_cache_blocks") == 100
    assert told.get_sample_value("everystep_kv_cache_bytes") == 409_600
    assert told.get_sample_value("everystep_max_model_len_tokens") == 2048
