"""Leases, progress, call deadlines and the right to judge."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.lease import (
    LeaseTerms,
    call_time,
    check_soft,
    lease_at_renewal,
    may_judge,
    may_renew,
    overdue_after,
    soft_after,
)
from django_jobs.exceptions import DefinitionError, NoTimeLeftError


def seconds(value: float) -> timedelta:
    """Shorten the tables below."""
    return timedelta(seconds=value)


def test_a_lease_is_budget_plus_cleanup() -> None:
    """The defaults are a budget of 60 s, a cleanup of 10 s and a run of 20 budgets at most."""
    terms = LeaseTerms()
    assert (terms.lease, terms.max_runtime) == (seconds(70), seconds(1200))
    assert terms.progress_interval == seconds(17.5)
    assert LeaseTerms(max_runtime=seconds(70)).max_runtime == seconds(70)


def test_the_default_run_is_never_shorter_than_the_lease() -> None:
    """A long cleanup beside a short budget still leaves a lease that can be held."""
    assert LeaseTerms(budget=seconds(1), cleanup=seconds(60)).max_runtime == seconds(61)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"budget": None}, "budget is None; give a timedelta"),
        ({"cleanup": None}, "cleanup is None"),
        ({"budget": 30}, "budget is 30; give a timedelta"),
        ({"budget": seconds(0)}, "budget is 0:00:00; give at least one second"),
        ({"cleanup": seconds(0.999)}, "cleanup is"),
        ({"max_runtime": seconds(-5)}, "max_runtime is"),
        ({"max_runtime": seconds(69)}, "max_runtime (0:01:09) is shorter than budget + cleanup (0:01:10)"),
    ],
)
def test_terms_refuse_times_that_cannot_work(values: dict[str, Any], words: str) -> None:
    """A time that is missing, too short or contradicts another is refused with its name and the mend."""
    with pytest.raises(DefinitionError) as refused:
        LeaseTerms(**values)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("terms", "renewed", "expected"),
    [
        (LeaseTerms(), 0, 68),
        (LeaseTerms(), 100, 168),
        (LeaseTerms(), 1190, 1198),
        (LeaseTerms(budget=seconds(1), cleanup=seconds(1)), 0, 1),
    ],
)
def test_overdue_comes_just_before_the_lease_or_the_run_ends(terms: LeaseTerms, renewed: float, expected: int) -> None:
    """Code is overdue 2 s before its lease or its run is over, and never inside its budget."""
    assert overdue_after(terms, renewed=seconds(renewed)) == seconds(expected)


@pytest.mark.parametrize(("renewed", "expected"), [(0, 60), (100, 160), (1130, 1190), (1190, 1190)])
def test_time_is_up_at_the_end_of_a_budget_and_leaves_the_cleanup(renewed: float, expected: int) -> None:
    """Counted from the last renewal, and at the latest the cleanup before the longest run."""
    assert soft_after(LeaseTerms(), renewed=seconds(renewed)) == seconds(expected)


def test_time_that_is_up_needs_some_to_be_heeded() -> None:
    """The handler is ended two seconds before its lease, so three of cleanup are the least."""
    check_soft(LeaseTerms(cleanup=seconds(3)))
    with pytest.raises(DefinitionError, match=r"cleanup of at least 3 seconds, not 2\.9"):
        check_soft(LeaseTerms(cleanup=seconds(2.9)))


@given(
    budget=st.integers(min_value=1, max_value=10_000),
    cleanup=st.integers(min_value=1, max_value=10_000),
    renewed=st.integers(min_value=0, max_value=300_000),
)
def test_overdue_lies_between_the_budget_and_the_end_of_the_lease(budget: int, cleanup: int, renewed: int) -> None:
    """Whatever the terms, overdue code is ended after its budget and before anybody else may take the job."""
    terms = LeaseTerms(budget=seconds(budget), cleanup=seconds(cleanup))
    end = overdue_after(terms, renewed=seconds(renewed))
    assert terms.budget <= end < seconds(renewed) + terms.lease
    assert end < terms.max_runtime


@pytest.mark.parametrize(("elapsed", "expected"), [(0, 70), (1130, 70), (1150, 50), (1200, 0), (9999, 0)])
def test_a_renewal_never_passes_the_longest_run(elapsed: float, expected: int) -> None:
    """Near the end of the run a renewal gets only what is left."""
    assert lease_at_renewal(LeaseTerms(), elapsed=seconds(elapsed)) == seconds(expected)


@pytest.mark.parametrize(
    ("stored", "value", "expected"), [(None, 0, True), (None, -3, True), (4, 5, True), (4, 4, False), (4, 3, False)]
)
def test_only_growing_progress_renews(stored: int | None, value: int, expected: bool) -> None:
    """The first report of an attempt renews, afterwards only growth does."""
    assert may_renew(stored, value) is expected


@pytest.mark.parametrize(
    ("timeout", "max_call", "remaining", "expected"), [(5, 10, 30, 5), (60, 10, 30, 10), (5, 10, 5, 5)]
)
def test_a_call_gets_its_timeout_under_the_cap(timeout: int, max_call: int, remaining: int, expected: int) -> None:
    """A call gets its own timeout, capped by the longest call, if the budget can hold it whole."""
    granted = call_time(timeout=seconds(timeout), max_call=seconds(max_call), remaining=seconds(remaining))
    assert granted == seconds(expected)


@pytest.mark.parametrize("remaining", [4.9, 0, -3])
def test_a_call_that_could_outlive_the_budget_is_refused(remaining: float) -> None:
    """A send whose deadline would pass the end of the budget is refused before anything is sent."""
    with pytest.raises(NoTimeLeftError, match="Nothing was sent"):
        call_time(timeout=seconds(5), max_call=seconds(10), remaining=seconds(remaining))


@pytest.mark.parametrize(
    ("beats", "now", "expected"),
    [
        ([], 100, False),
        ([100], 106, False),
        ([100, 105], 105, False),
        ([100, 105], 109.9, False),
        ([100, 105], 110, True),
        ([100, 105, 110], 110, True),
        ([100, 105, 110], 117, True),
        ([100, 105, 110], 117.1, False),
        ([50, 55, 60, 68, 73], 77, False),
        ([50, 55, 60, 68, 73], 78, True),
        ([50, 57, 64], 64, True),
        ([50, 57.1, 62], 66, False),
        ([50, 55, 60, 90], 96, False),
    ],
)
def test_a_judge_needs_two_good_beats_and_one_more_period(beats: list[float], now: float, expected: bool) -> None:
    """A worker that was away itself judges nobody until it has been back for two beats and a period."""
    assert may_judge(beats, now) is expected


def test_a_faster_heartbeat_shortens_the_wait_before_judging() -> None:
    """The period that is waited is the worker's own heartbeat."""
    assert may_judge([10, 11], 12, heartbeat=seconds(1), gap=seconds(2))
    assert not may_judge([10, 11], 13.5, heartbeat=seconds(1), gap=seconds(2))
