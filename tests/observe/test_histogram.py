"""The histogram agrees with prometheus-client's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Reference

from everystep.observe.histogram import SECONDS, Histogram

values = st.lists(st.floats(0, 100) | st.sampled_from(SECONDS), max_size=30)


@given(values)
def test_it_counts_as_the_library_s_histogram_does(observed: list[float]) -> None:
    ours, reference = Histogram(SECONDS), Reference("x", "x", buckets=SECONDS, registry=CollectorRegistry())
    for value in observed:
        ours.observe(value)
        reference.observe(value)
    [family] = reference.collect()
    expected = [(sample.labels["le"], sample.value) for sample in family.samples if sample.name == "x_bucket"]
    assert ours.cumulative() == expected
    assert ours.count == len(observed)
    assert ours.sum == pytest.approx(sum(observed))
