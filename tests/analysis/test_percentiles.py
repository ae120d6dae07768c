"""Percentiles and ratios, computed by hand."""

from __future__ import annotations

import pytest

from everystep.analysis.percentiles import paired_ratio, percentile, summary


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 0.99, 7.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.5),
        ([0.0, 10.0], 0.95, 9.5),
        (list(range(101)), 0.99, 99.0),
        ([1.0, 2.0], 1.0, 2.0),
        ([1.0, 2.0], 0.0, 1.0),
    ],
)
def test_a_percentile_lies_between_its_neighbours(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == pytest.approx(expected)


def test_a_summary_of_nothing_says_so() -> None:
    assert summary([]) == {"p50": None, "p95": None, "p99": None}


def test_a_summary_has_the_three_percentiles_of_the_contract() -> None:
    assert summary([float(number) for number in range(101)]) == pytest.approx({"p50": 50, "p95": 95, "p99": 99})


def test_ratios_are_paired_within_a_round_so_that_the_machines_drift_cancels() -> None:
    """Both slow down threefold in the last round.  The ratio of medians would be 2.5."""
    assert paired_ratio([2.0, 5.0, 6.0], [1.0, 2.0, 3.0]) == 2.0
