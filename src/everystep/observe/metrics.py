"""The numbers of ``/metrics``: counted as things happen, put into words when somebody scrapes.

Owns every ``everystep_*`` name, its help text and its registry (never the process-wide one).  A "request" in these
names is one sequence (a prompt, or one of its ``n`` choices), as in vLLM.  How many run and wait is derived at the
scrape from the open sequences, so that accepted = ended + running + waiting holds at each.  Ignorant of clocks, HTTP
and who calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from everystep.messages import EngineStatus, StepSummary, VllmLoad
from everystep.observe.histogram import SECONDS, TOKENS, Histogram
from everystep.observe.sequence_life import SequenceLife
from everystep.observe.vllm_counts import VLLM, VllmCounts
from everystep.types import FinishReason

Labels = Sequence[str]

CONTENT_TYPE = CONTENT_TYPE_LATEST
OUTCOMES = (*(reason.value for reason in FinishReason), "rejected")
SEAT_STATES = ("working", "held", "empty")

_ONE = "A request here is one sequence: a prompt, or one of its n choices."
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "everystep_time_to_first_token_seconds": (f"From a request's arrival to its first token. {_ONE}", SECONDS),
    "everystep_inter_token_latency_seconds": ("Between neighbouring tokens of a request.", SECONDS),
    "everystep_request_queue_seconds": (f"From a request's arrival to its first forward pass. {_ONE}", SECONDS),
    "everystep_e2e_request_seconds": (f"From a request's arrival to its end, whatever the end. {_ONE}", SECONDS),
    "everystep_step_seconds": ("Time of a forward pass with planning and sampling.", SECONDS),
    "everystep_step_tokens": ("Tokens computed in a forward pass.", TOKENS),
}


class Metrics:
    """Counters that only grow, and the view of the open sequences; one caller tells, on one thread."""

    def __init__(self, policies: tuple[str, ...], open_sequences: Collection[SequenceLife]) -> None:
        """``open_sequences`` is the observer's live view; it is read at each scrape."""
        self.policies = policies
        self._open = open_sequences
        self.connections: Collection[object] = ()  # the server's live view; read at each scrape
        self.num_spans: Callable[[], dict[str, int]] | None = None  # by outcome, where requests are traced
        self.num_accepted = dict.fromkeys(policies, 0)
        self.num_ended = {(policy, outcome): 0 for policy in policies for outcome in OUTCOMES}
        self.seat_steps = {(policy, state): 0 for policy in policies if policy != VLLM for state in SEAT_STATES}
        self.num_prompt_tokens = 0
        self.num_generation_tokens = 0
        self.num_prefix_hit_tokens = 0
        self.num_preemptions = 0
        self.num_worker_restarts = 0
        self.blocks_used = 0
        self.blocks_total = 0
        self.last_step_end_s = 0.0
        self.vllm = VllmCounts() if VLLM in policies else None
        histograms = {name: Histogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self.histograms = histograms
        self.ttft_s = histograms["everystep_time_to_first_token_seconds"]
        self.itl_s = histograms["everystep_inter_token_latency_seconds"]
        self.queue_s = histograms["everystep_request_queue_seconds"]
        self.e2e_s = histograms["everystep_e2e_request_seconds"]
        self.step_s = histograms["everystep_step_seconds"]
        self.step_tokens = histograms["everystep_step_tokens"]

    def step(self, summary: StepSummary) -> None:
        """A step's numbers."""
        self.step_s.observe(summary.end_s - summary.start_s)
        self.step_tokens.observe(summary.num_new_tokens)
        self.seat_steps[summary.policy, "working"] += summary.num_working
        self.seat_steps[summary.policy, "held"] += summary.num_held
        self.seat_steps[summary.policy, "empty"] += summary.num_empty
        self.num_preemptions += summary.num_preemptions
        self.num_prefix_hit_tokens += summary.num_prefix_hit_tokens
        self.blocks_used = summary.blocks_used
        self.blocks_total = summary.blocks_total
        self.last_step_end_s = summary.end_s

    def take_vllm_load(self, load: VllmLoad | None) -> None:
        """vLLM's counts, as it last told them."""
        if self.vllm is not None:
            self.vllm.take(load)

    def render(self, status: EngineStatus, version: str, now_s: float, also: Iterable[Collector] = ()) -> bytes:
        """Prometheus text format (:data:`CONTENT_TYPE`); ``also`` are others that have something to say."""
        registry = CollectorRegistry(auto_describe=False)
        for collector in (_Scrape(self, status, version, now_s), *also):
            registry.register(collector)
        return generate_latest(registry)

    def num_open(self, *, seated: bool) -> dict[str, int]:
        """Open sequences by policy: those with a seat, or those without."""
        counts = dict.fromkeys(self.policies, 0)
        for life in self._open:
            counts[life.policy] += life.is_seated is seated
        return counts

    def num_tokens_waiting(self) -> dict[str, int]:
        """Prompt tokens of open sequences without a seat, by policy."""
        counts = dict.fromkeys(self.policies, 0)
        for life in self._open:
            counts[life.policy] += 0 if life.is_seated else life.num_prompt_tokens
        return counts

    def since_progress_s(self, now_s: float) -> float:
        """How long no step has ended though there was work; 0 without work.  vLLM's steps aren't ours to see."""
        arrivals = [life.arrival_s for life in self._open if life.policy != VLLM]
        return max(0.0, now_s - max(self.last_step_end_s, min(arrivals))) if arrivals else 0.0

    @property
    def kv_cache_usage(self) -> float:
        """Share of blocks in use as the worker last told: what it doesn't give back shows, whoever has ended."""
        return self.blocks_used / self.blocks_total if self.blocks_total else 0.0


class _Scrape(Collector):
    """One scrape: every family, from the state as it is now."""

    def __init__(self, metrics: Metrics, status: EngineStatus, version: str, now_s: float) -> None:
        self._metrics = metrics
        self._status = status
        self._version = version
        self._now_s = now_s

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._engine()
        yield from self._totals()
        if self._metrics.vllm is not None:
            yield from self._metrics.vllm.collect()
        for name, histogram in self._metrics.histograms.items():
            yield HistogramMetricFamily(
                name, _HISTOGRAMS[name][0], buckets=histogram.cumulative(), sum_value=histogram.sum
            )

    def _requests(self) -> Iterator[Metric]:
        metrics = self._metrics
        accepted = CounterMetricFamily("everystep_requests_accepted", f"Requests taken in. {_ONE}", labels=["policy"])
        yield _labelled(accepted, _one_label(metrics.num_accepted))
        words = f"Requests ended, and those refused. {_ONE}"
        ended = CounterMetricFamily("everystep_requests", words, labels=["policy", "outcome"])
        yield _labelled(ended, metrics.num_ended.items())
        running = GaugeMetricFamily("everystep_num_requests_running", f"With a seat. {_ONE}", labels=["policy"])
        yield _labelled(running, _one_label(metrics.num_open(seated=True)))
        waiting = GaugeMetricFamily("everystep_num_requests_waiting", f"Without a seat. {_ONE}", labels=["policy"])
        yield _labelled(waiting, _one_label(metrics.num_open(seated=False)))
        tokens = GaugeMetricFamily(
            "everystep_num_prompt_tokens_waiting",
            f"Prompt tokens of requests without a seat. {_ONE}",
            labels=["policy"],
        )
        yield _labelled(tokens, _one_label(metrics.num_tokens_waiting()))
        words = "Seats times steps: working (computed), held (ended, but its round runs on), empty."
        seats = CounterMetricFamily("everystep_seat_steps", words, labels=["policy", "state"])
        yield _labelled(seats, metrics.seat_steps.items())

    def _engine(self) -> Iterator[Metric]:
        info, is_ready = self._status.info, self._status.is_ready
        labels = ["version", "model", "runner", "precision"]
        family = GaugeMetricFamily("everystep_info", "What serves; always 1.", labels=labels)
        what = [info.model, info.runner, info.precision] if info else ["", "", ""]
        family.add_metric([self._version, *what], 1)
        yield family
        num_connections = len(self._metrics.connections)
        yield GaugeMetricFamily("everystep_http_connections", "Open connections, idle ones too.", num_connections)
        yield GaugeMetricFamily("everystep_engine_ready", "1 where a request sent now would be served.", int(is_ready))
        yield GaugeMetricFamily(
            "everystep_kv_cache_usage_ratio", "KV blocks in use, of all.", self._metrics.kv_cache_usage
        )
        yield GaugeMetricFamily("everystep_kv_cache_blocks_used", "KV blocks in use.", self._metrics.blocks_used)
        yield GaugeMetricFamily(
            "everystep_seconds_since_progress",
            "Since a step ended, or work came if that is later; 0 without work. A running step counts too.",
            self._metrics.since_progress_s(self._now_s),
        )

    def _totals(self) -> Iterator[Metric]:
        metrics = self._metrics
        totals = {
            "everystep_prompt_tokens": ("Prompt tokens of requests that got a seat.", metrics.num_prompt_tokens),
            "everystep_generation_tokens": ("Tokens generated.", metrics.num_generation_tokens),
            "everystep_prefix_cache_hit_tokens": (
                "Tokens found in the KV cache instead of computed.",
                metrics.num_prefix_hit_tokens,
            ),
            "everystep_preemptions": ("Sequences that gave seat and blocks back.", metrics.num_preemptions),
            "everystep_worker_restarts": ("Workers started after one ended unasked.", metrics.num_worker_restarts),
        }
        for name, (words, value) in totals.items():
            yield CounterMetricFamily(name, words, value)
        if metrics.num_spans is not None:
            words = "Spans of traces: sent to the collector, failed to be, dropped for want of room."
            spans = CounterMetricFamily("everystep_trace_spans", words, labels=["outcome"])
            yield _labelled(spans, _one_label(metrics.num_spans()))


def _labelled(family: CounterMetricFamily | GaugeMetricFamily, values: Iterable[tuple[Labels, int]]) -> Metric:
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _one_label(values: dict[str, int]) -> Iterator[tuple[Labels, int]]:
    return (((policy,), value) for policy, value in values.items())
