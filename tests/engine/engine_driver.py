"""A core that parity tests throw traffic at; it reports what each sequence got."""

from everystep.config import Settings
from everystep.engine.bootstrap import build_core
from everystep.messages import Submit
from everystep.sampling_params import SamplingParams

LANES = ["static", "per_token", "continuous"]


class Engine:
    """Exact precision and a small budget, so that prompts are read in chunks."""

    def __init__(self, model, cache_dir, **settings):
        defaults = {"precision": "f32", "kv_cache_gib": 0.25, "max_num_batched_tokens": 64}
        self.settings = Settings(model=str(model), cache_dir=cache_dir, **(defaults | settings))
        self.step = 0
        self.core, self.info = build_core(self.settings, now_s=lambda: float(self.step))
        self.tokens, self.ends = {}, {}
        self.num_preemptions = self.num_hit_tokens = 0

    def submit(self, name, policy, prompt, num_tokens):
        params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
        self.tokens[name] = []
        self.core.submit(Submit(name, name, policy, tuple(prompt), params, 0, (), 0, float(self.step)))

    def run_step(self):
        output = self.core.step()
        events = (*(output.events if output else ()), *self.core.take_events())
        if output:
            self.num_preemptions += output.summary.num_preemptions
            self.num_hit_tokens += output.summary.num_prefix_hit_tokens
        for event in events:
            if event.token:
                self.tokens[event.sequence_id].append(event.token.token_id)
            if event.finish_reason:
                assert event.sequence_id not in self.ends
                self.ends[event.sequence_id] = event.finish_reason
        self.step += 1

    def run(self):
        while self.core.has_work():
            self.run_step()
        self.core.pool.check()
        assert self.core.pool.num_used_blocks == 0
