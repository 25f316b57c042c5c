"""Retry policy, backoff and what follows a failure or a free move."""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.retry import (
    Counters,
    DeadLetter,
    Next,
    Retry,
    RetryPolicy,
    after_failure,
    after_free_move,
    after_wait,
    backoff,
    count_failure,
    count_free,
)
from django_jobs.domain.states import DeadReason, ErrorClass
from django_jobs.exceptions import DefinitionError

POLICY = RetryPolicy(base=timedelta(seconds=5))
HOUR = timedelta(hours=1)


def decide(error_class: ErrorClass, **traits: Any) -> Next:
    """Ask what follows a failure with quiet defaults and the longest jitter."""
    facts: dict[str, Any] = {
        "counters": Counters(unknown=1, unchanged=1),
        "age": timedelta(0),
        "retry_after": None,
        "useful_left": None,
        "random": lambda: 1.0,
    }
    return after_failure(traits.pop("policy", POLICY), error_class=error_class, **{**facts, **traits})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"base": timedelta(0)}, "base is 0:00:00; give a time above zero"),
        ({"base": timedelta(seconds=-1)}, "above zero"),
        ({"cap": None}, "cap is None; give a timedelta"),
        ({"transient_max_age": 60}, "transient_max_age is 60; give a timedelta"),
        ({"reconcile_max_age": timedelta(0)}, "reconcile_max_age"),
        ({"cap": timedelta(seconds=1)}, "shorter than base"),
        ({"unknown_attempts": 0}, "unknown_attempts is 0; give 1 or more"),
        ({"unchanged": -3}, "unchanged is -3"),
        ({"losses": None}, "losses is None; give a whole number"),
        ({"free_moves": True}, "free_moves is True"),
        ({"unknown_attempts": 2.5}, "unknown_attempts is 2.5"),
        ({"factor": 0.5}, "factor is 0.5"),
        ({"factor": None}, "factor is None"),
        ({"factor": float("nan")}, "factor is nan"),
        ({"factor": float("inf")}, "factor is inf"),
        ({"permanent": ValueError}, "give a tuple of exception types"),
        ({"transient": ("ValueError",)}, "'ValueError', which is not an exception type"),
        ({"transient": (int,)}, "not an exception type"),
        ({"permanent": (ValueError,), "transient": (ValueError,)}, "ValueError is named in permanent and in transient"),
    ],
)
def test_policy_refuses_values_that_cannot_work(values: dict[str, Any], words: str) -> None:
    """A policy that cannot work is refused where it is written, with the name and the mend."""
    with pytest.raises(DefinitionError, match="RetryPolicy") as refused:
        RetryPolicy(**values)
    assert words in str(refused.value)


def test_counters_refuse_a_negative_count() -> None:
    """A counter below zero is a defect and is refused."""
    with pytest.raises(ValueError, match="lost is -1"):
        Counters(lost=-1)


@given(failures=st.integers(min_value=-5, max_value=10**30), part=st.floats(min_value=0, max_value=1))
def test_backoff_stays_within_its_bounds(failures: int, part: float) -> None:
    """Whatever the count, a delay is never negative and never above the cap."""
    assert timedelta(0) <= backoff(POLICY, failures, random=lambda: part) <= POLICY.cap


@pytest.mark.parametrize(("failures", "seconds"), [(1, 5), (2, 10), (3, 20), (7, 320), (8, 600), (5000, 600)])
def test_backoff_doubles_up_to_the_cap(failures: int, seconds: int) -> None:
    """The bound doubles with each failure until it meets the cap."""
    assert backoff(POLICY, failures, random=lambda: 1.0) == timedelta(seconds=seconds)


def test_backoff_is_full_jitter() -> None:
    """The delay is the random part of the bound, down to nothing."""
    assert backoff(POLICY, 2, random=lambda: 0.0) == timedelta(0)
    assert backoff(POLICY, 2, random=lambda: 0.5) == timedelta(seconds=5)


@pytest.mark.parametrize(
    ("error_class", "traits", "expected"),
    [
        ("permanent", {}, DeadLetter(DeadReason.PERMANENT)),
        ("permanent", {"dead_reason": DeadReason.PAYLOAD}, DeadLetter(DeadReason.PAYLOAD)),
        ("unknown", {}, Retry(timedelta(seconds=5))),
        ("unknown", {"counters": Counters(unknown=2, unchanged=2)}, Retry(timedelta(seconds=10))),
        ("unknown", {"counters": Counters(unknown=3, unchanged=1)}, DeadLetter(DeadReason.UNKNOWN_BUDGET)),
        ("unknown", {"counters": Counters(unknown=3), "extra_attempts": 1}, Retry(timedelta(seconds=20))),
        ("unknown", {"counters": Counters(unknown=4), "extra_attempts": 1}, DeadLetter(DeadReason.UNKNOWN_BUDGET)),
        ("unknown", {"age": 100 * HOUR}, Retry(timedelta(seconds=5))),
        ("transient", {"counters": Counters(transient=1, unchanged=99)}, Retry(timedelta(seconds=5))),
        ("transient", {"counters": Counters(transient=5000, unknown=2)}, Retry(timedelta(minutes=10))),
        ("transient", {"age": 24 * HOUR - timedelta(seconds=5)}, Retry(timedelta(seconds=5))),
        ("transient", {"age": 24 * HOUR - timedelta(seconds=4)}, DeadLetter(DeadReason.AGE)),
        ("transient", {"useful_left": timedelta(seconds=5)}, Retry(timedelta(seconds=5))),
        ("transient", {"useful_left": timedelta(seconds=4)}, DeadLetter(DeadReason.EXPIRED)),
        ("unknown", {"useful_left": timedelta(seconds=-1)}, DeadLetter(DeadReason.EXPIRED)),
        ("transient", {"retry_after": timedelta(seconds=90)}, Retry(timedelta(seconds=90))),
        ("transient", {"retry_after": timedelta(seconds=1)}, Retry(timedelta(seconds=5))),
        ("transient", {"retry_after": timedelta(days=11574)}, Retry(24 * HOUR)),
        ("transient", {"retry_after": 2 * HOUR, "age": 23 * HOUR}, Retry(HOUR)),
        ("transient", {"retry_after": HOUR, "useful_left": HOUR / 2}, DeadLetter(DeadReason.EXPIRED)),
    ],
)
def test_after_failure_follows_the_table(error_class: str, traits: dict[str, Any], expected: Next) -> None:
    """Each class has its own limit: none for permanent, a count for unknown, the age for transient."""
    assert decide(ErrorClass(error_class), **traits) == expected


def test_after_failure_stops_an_unknown_error_that_never_changes() -> None:
    """The same unknown error in a row dead-letters before a larger budget is spent."""
    policy = RetryPolicy(base=timedelta(seconds=5), unknown_attempts=50)
    assert decide(ErrorClass.UNKNOWN, policy=policy, counters=Counters(unknown=4, unchanged=4)) == Retry(
        timedelta(seconds=40)
    )
    ended = decide(ErrorClass.UNKNOWN, policy=policy, counters=Counters(unknown=9, unchanged=5))
    assert ended == DeadLetter(DeadReason.UNCHANGED)


@given(
    age=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3)),
    retry_after=st.none() | st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=99999)),
    useful=st.none() | st.timedeltas(min_value=timedelta(days=-1), max_value=timedelta(days=2)),
    failures=st.integers(min_value=1, max_value=500),
    part=st.floats(min_value=0, max_value=1),
)
def test_a_retry_never_passes_max_age_or_usefulness(
    age: timedelta, retry_after: timedelta | None, useful: timedelta | None, failures: int, part: float
) -> None:
    """A transient failure is retried inside both limits or not at all, and never earlier than allowed."""
    decision = after_failure(
        POLICY,
        error_class=ErrorClass.TRANSIENT,
        counters=Counters(transient=failures),
        age=age,
        retry_after=retry_after,
        useful_left=useful,
        random=lambda: part,
    )
    if isinstance(decision, Retry):
        assert timedelta(0) <= decision.delay <= POLICY.transient_max_age - age
        assert useful is None or decision.delay <= useful
        assert retry_after is None or decision.delay >= min(retry_after, POLICY.transient_max_age - age)
    else:
        assert decision.reason in {DeadReason.AGE, DeadReason.EXPIRED}


@pytest.mark.parametrize(
    ("error_class", "same", "expected"),
    [
        (ErrorClass.UNKNOWN, True, Counters(unknown=2, transient=1, unchanged=4, free=2)),
        (ErrorClass.UNKNOWN, False, Counters(unknown=2, transient=1, unchanged=1, free=2)),
        (ErrorClass.TRANSIENT, True, Counters(unknown=1, transient=2, unchanged=0, free=2)),
        (ErrorClass.PERMANENT, False, Counters(unknown=1, transient=1, unchanged=3, free=2)),
    ],
)
def test_count_failure_charges_its_class_and_clears_losses(
    error_class: ErrorClass, same: bool, expected: Counters
) -> None:
    """A reported failure is charged to its class only, and what was lost before is forgiven."""
    before = Counters(unknown=1, transient=1, unchanged=3, free=2, lost=2, exit_lost=1, silent_lost=1)
    assert count_failure(before, error_class, same=same) == expected


def test_count_free_charges_no_error_budget() -> None:
    """A free move raises its own counter and leaves losses as they are."""
    assert count_free(Counters(unknown=1, lost=1)) == Counters(unknown=1, lost=1, free=1)


@pytest.mark.parametrize(
    ("free", "age", "delay", "useful_left", "expected"),
    [
        (200, timedelta(0), HOUR, None, Retry(HOUR)),
        (201, timedelta(0), HOUR, None, DeadLetter(DeadReason.NO_PROGRESS)),
        (1, 23 * HOUR, HOUR, None, Retry(HOUR)),
        (2, 23 * HOUR, 2 * HOUR, None, Retry(2 * HOUR)),
        (3, 23 * HOUR, 2 * HOUR, None, DeadLetter(DeadReason.NO_PROGRESS)),
        (1, timedelta(0), HOUR, HOUR / 2, DeadLetter(DeadReason.EXPIRED)),
        (1, timedelta(0), HOUR, HOUR, Retry(HOUR)),
    ],
)
def test_after_free_move_is_bounded_by_count_and_age(
    free: int, age: timedelta, delay: timedelta, useful_left: timedelta | None, expected: Next
) -> None:
    """Snoozes and releases go on up to 200 moves or the max age, whichever comes first."""
    assert after_free_move(POLICY, counters=Counters(free=free), age=age, delay=delay, useful_left=useful_left) == (
        expected
    )


def test_after_wait_ends_when_evidence_did_not_come_in_time() -> None:
    """Waiting for evidence has an age of its own and ends as an open effect."""
    assert after_wait(POLICY, waited=23 * HOUR, delay=HOUR) == Retry(HOUR)
    assert after_wait(POLICY, waited=24 * HOUR, delay=HOUR) == DeadLetter(DeadReason.EFFECT_OPEN)


@pytest.mark.parametrize("error_class", [ErrorClass.UNKNOWN, ErrorClass.TRANSIENT])
@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_r80_jobs_that_fail_together_come_back_apart(error_class: ErrorClass, failures: int, seed: int) -> None:
    """500 jobs fail in one second under the default policy: no second, wherever it begins, gets over 10 % of them."""
    draw = Random(seed)
    counted = Counters(unknown=failures) if error_class is ErrorClass.UNKNOWN else Counters(transient=failures)
    due = []
    for _ in range(500):
        following = decide(error_class, policy=RetryPolicy(), counters=counted, random=draw.random)
        assert isinstance(following, Retry)
        due.append(draw.random() + following.delay.total_seconds())
    due.sort()

    busiest = max(bisect_left(due, start + 1.0) - place for place, start in enumerate(due))

    assert busiest <= 50
