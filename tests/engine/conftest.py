"""A core and a client on the fake runner, with a tiny model's tokenizer."""

from pathlib import Path

import msgspec
import pytest

from everystep.checkpoint import default_cache_dir
from everystep.config import Settings
from everystep.engine.core import EngineCore
from everystep.messages import GenerationRequest, StepRecord, Submit, WaitingRow
from everystep.runner.fake import FakeRunner
from everystep.sampling_params import SamplingParams
from everystep.sched import BlockPool
from everystep.sched.from_settings import build_lanes

TINY_MODEL = Path(__file__).parent.parent / "golden" / "tiny" / "llama"


class CoreBench:
    """A core on a clock that the test moves: each step takes one second."""

    def __init__(self, *, num_blocks=256, block_size=4, runner=None, **settings):
        self.settings = Settings(**settings)
        self.runner = runner or FakeRunner(block_size=block_size, step_s=lambda plan: 1.0)
        self.runner.allocate(num_blocks)
        self.pool = BlockPool(num_blocks, self.runner.block_size, prefix_cache=self.settings.prefix_cache)
        self.time_s = 0.0
        self.on_drain = lambda: None
        self.core = EngineCore(
            runner=self.runner,
            lanes=build_lanes(self.settings, self.pool, 1024),
            pool=self.pool,
            now_s=lambda: self.time_s,
            drain=lambda: self.on_drain(),
            check_when_idle=True,
        )
        self.records: list[StepRecord] = []
        self.waiting: list[list[WaitingRow]] = []
        self.events = []
        self._last_waiting: dict[str, list[WaitingRow]] = {}

    def submit(self, name, policy, *, prompt=(1, 2, 3), max_tokens=4, request=None, **params):
        self.core.submit(
            Submit(
                name,
                request or name,
                policy,
                tuple(prompt),
                SamplingParams(max_tokens=max_tokens, ignore_eos=True, **params),
                0,
                (),
                0,
                self.time_s,
            )
        )

    def step(self):
        output = self.core.step()
        self.events += self.core.take_events()
        if output is None:
            return None
        self.events += output.events
        self.time_s = output.summary.end_s
        record = msgspec.msgpack.decode(output.record, type=StepRecord)
        self.records.append(record)
        if output.waiting is not None:
            self._last_waiting[record.policy] = msgspec.msgpack.decode(output.waiting, type=list[WaitingRow])
        self.waiting.append(self._last_waiting.get(record.policy, []))
        return output

    def run(self, max_steps=1000):
        for _ in range(max_steps):
            if not self.core.has_work():
                return self
            assert self.step() is not None, "nobody can run, though there is work"
        raise AssertionError(f"still work after {max_steps} steps")

    def tokens_of(self, name):
        return [event.token.token_id for event in self.events if event.sequence_id == name and event.token]

    def ends_of(self, name):
        return [event.finish_reason for event in self.events if event.sequence_id == name and event.finish_reason]


@pytest.fixture
def make_core():
    return CoreBench


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make_settings(cache_dir):
    def make(**settings):
        defaults = {"model": str(TINY_MODEL), "runner": "fake", "cache_dir": cache_dir, "kv_cache_gib": 0.001}
        return Settings(**(defaults | settings))

    return make


@pytest.fixture
def make_request():
    def make(*prompts, policy="continuous", request_id="r", timeout_s=None, **params):
        params = {"max_tokens": 8, "ignore_eos": True} | params
        return GenerationRequest(
            request_id=request_id,
            prompts=prompts or ((1, 2, 3),),
            params=SamplingParams(**params),
            policy=policy,
            timeout_s=timeout_s,
        )

    return make


@pytest.fixture(scope="session")
def smollm2_cache():
    """The user's own cache: the model is 100 MB, and its built weights several hundred."""
    return default_cache_dir()
