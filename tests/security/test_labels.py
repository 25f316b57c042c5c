"""S15: what producers invent makes no series."""

from __future__ import annotations

from django_jobs.observe.labels import LIMIT, Names


def test_s15_ten_thousand_names_make_a_bounded_number_of_series() -> None:
    """S15: the names beyond the limit share one label."""
    names = Names(LIMIT)

    assert len({names.label(f"queue-{number}") for number in range(10_000)}) == LIMIT + 1
