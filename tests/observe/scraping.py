"""Metrics read back from their text by prometheus-client's parser."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from everystep.messages import EngineStatus
from everystep.observe.observer import Observer

READY = EngineStatus(is_live=True, is_ready=True)


class Scrape:
    """One scrape of an observer."""

    def __init__(
        self, observer: Observer, status: EngineStatus = READY, version: str = "0", now_s: float = 0.0
    ) -> None:
        text = observer.metrics.render(status, version, now_s).decode()
        self.families: list[Metric] = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The one sample with this name and these labels."""
        [value] = [sample.value for sample in self.samples if sample.name == name and sample.labels == labels]
        return value

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples with this name whose labels include these."""
        return sum(s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items())

    def ended(self, policy: str) -> float:
        """Accepted sequences that have ended."""
        every = self.total("everystep_requests_total", policy=policy)
        return every - self.value("everystep_requests_total", policy=policy, outcome="rejected")

    def open(self, policy: str) -> float:
        running = self.value("everystep_num_requests_running", policy=policy)
        return running + self.value("everystep_num_requests_waiting", policy=policy)
