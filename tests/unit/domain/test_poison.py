"""Lost attempts: isolation, conviction and clearing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs.domain.poison import after_loss, cleared, convicts, count_loss, ended_on_purpose, isolation
from django_jobs.domain.retry import Counters, DeadLetter, Next, Retry, RetryPolicy
from django_jobs.domain.states import Alone, DeadReason, LossCause

POLICY = RetryPolicy(base=timedelta(seconds=5))
EXIT, SILENT, EXPIRED, ENDED = LossCause.EXIT, LossCause.SILENT, LossCause.EXPIRED, LossCause.ENDED
AT_ONCE = Retry(timedelta(0))


def decide(cause: LossCause, alone: Alone, counters: Counters, **traits: Any) -> Next:
    """Ask what follows a loss of a young job with the longest jitter."""
    facts: dict[str, Any] = {"age": timedelta(0), "useful_left": None, "random": lambda: 1.0, **traits}
    return after_loss(POLICY, cause=cause, alone=alone, counters=counters, **facts)


def fates_when_always_lost_by(cause: LossCause) -> list[object]:
    """Lose a job three times as claim and reaper would: isolate, count, decide."""
    counters, fates = Counters(), []
    for _ in range(3):
        alone = isolation(exit_lost=counters.exit_lost, silent_lost=counters.silent_lost)
        counters = count_loss(counters, cause)
        fate = decide(cause, alone, counters)
        fates.append(Retry if isinstance(fate, Retry) else fate)
    return fates


@pytest.mark.parametrize(
    ("exit_lost", "silent_lost", "expected"),
    [
        (0, 0, Alone.NO),
        (0, 1, Alone.NO),
        (1, 0, Alone.CHILD),
        (2, 1, Alone.CHILD),
        (0, 2, Alone.WORKER),
        (3, 2, Alone.WORKER),
    ],
)
def test_isolation_grows_with_the_losses(exit_lost: int, silent_lost: int, expected: Alone) -> None:
    """One reaped exit asks for an own child, two silent losses for the whole worker, and the worker wins."""
    assert isolation(exit_lost=exit_lost, silent_lost=silent_lost) is expected


@pytest.mark.parametrize(
    ("cause", "alone", "expected"),
    [
        (EXIT, Alone.NO, False),
        (EXIT, Alone.CHILD, True),
        (EXIT, Alone.WORKER, True),
        (SILENT, Alone.NO, False),
        (SILENT, Alone.CHILD, False),
        (SILENT, Alone.WORKER, True),
        (EXPIRED, Alone.CHILD, False),
        (EXPIRED, Alone.WORKER, False),
        (ENDED, Alone.WORKER, False),
    ],
)
def test_only_a_loss_without_company_convicts(cause: LossCause, alone: Alone, expected: bool) -> None:
    """An exit convicts a job alone in its child, silence only a job alone on its worker, an expired lease nobody."""
    assert convicts(cause, alone) is expected
    ended = decide(cause, alone, Counters(lost=3, exit_lost=3, silent_lost=3, free=1))
    assert (ended == DeadLetter(DeadReason.POISON)) is expected


def test_silence_of_a_stopping_worker_convicts_nobody() -> None:
    """Whoever asked it to stop may have ended it."""
    assert convicts(SILENT, Alone.WORKER)
    assert not convicts(SILENT, Alone.WORKER, stopping=True)


def test_lost_job_that_is_worth_nothing_any_more_expires() -> None:
    """When the next attempt would come after the job's usefulness, it is left to a human now."""
    after = after_loss(
        RetryPolicy(base=timedelta(seconds=5)),
        cause=EXIT,
        alone=Alone.NO,
        counters=Counters(lost=2, exit_lost=2),
        age=timedelta(0),
        useful_left=timedelta(seconds=1),
        random=lambda: 1.0,
    )

    assert after == DeadLetter(DeadReason.EXPIRED)


def test_job_that_is_lost_for_too_long_is_too_old() -> None:
    """Losses in company convict nobody; they end with the age that failures of others may last."""
    after = after_loss(
        RetryPolicy(transient_max_age=timedelta(hours=1)),
        cause=EXIT,
        alone=Alone.NO,
        counters=Counters(lost=5, exit_lost=5),
        age=timedelta(hours=2),
        useful_left=None,
    )

    assert after == DeadLetter(DeadReason.AGE)


def test_two_losses_alone_are_not_enough_to_convict() -> None:
    """Below the limit of losses even a convicting one is retried."""
    assert decide(EXIT, Alone.CHILD, Counters(lost=2, exit_lost=2)) == Retry(timedelta(seconds=5))


@pytest.mark.parametrize(
    ("cause", "counters", "expected"),
    [
        (EXIT, Counters(lost=1, exit_lost=1), AT_ONCE),
        (SILENT, Counters(lost=1, silent_lost=1), AT_ONCE),
        (EXPIRED, Counters(free=1), AT_ONCE),
        (SILENT, Counters(lost=2, silent_lost=2), Retry(timedelta(seconds=5))),
        (EXIT, Counters(lost=4, exit_lost=2, silent_lost=2), Retry(timedelta(seconds=20))),
        (EXPIRED, Counters(free=3), Retry(timedelta(seconds=10))),
        (ENDED, Counters(free=3), AT_ONCE),
    ],
)
def test_the_first_loss_is_due_at_once_and_later_ones_back_off(
    cause: LossCause, counters: Counters, expected: Next
) -> None:
    """A first loss costs no waiting; each further one waits longer."""
    assert decide(cause, Alone.NO, counters) == expected


def test_an_expired_lease_is_bounded_as_a_free_move() -> None:
    """A lease that runs out again and again ends as no progress, never as poison."""
    ended = decide(EXPIRED, Alone.WORKER, Counters(free=201, lost=9, silent_lost=9))
    assert ended == DeadLetter(DeadReason.NO_PROGRESS)


@pytest.mark.parametrize("cause", [EXIT, SILENT])
def test_a_lost_job_that_is_too_old_or_useless_is_dead(cause: LossCause) -> None:
    """Usefulness binds lost attempts, max age those lost as often as allowed, and a conviction is named before both."""
    counters, often = Counters(lost=2, exit_lost=1, silent_lost=1), Counters(lost=3, exit_lost=2, silent_lost=1)
    day, gone = timedelta(hours=24), timedelta(seconds=1)
    assert isinstance(decide(cause, Alone.NO, counters, age=day), Retry)
    assert decide(cause, Alone.NO, often, age=day) == DeadLetter(DeadReason.AGE)
    assert decide(cause, Alone.NO, counters, useful_left=gone) == DeadLetter(DeadReason.EXPIRED)
    guilty = Counters(lost=3, exit_lost=3)
    assert decide(cause, Alone.WORKER, guilty, age=day, useful_left=gone) == DeadLetter(DeadReason.POISON)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (EXIT, Counters(lost=2, exit_lost=2, free=4)),
        (SILENT, Counters(lost=2, exit_lost=1, silent_lost=1, free=4)),
        (EXPIRED, Counters(lost=1, exit_lost=1, free=5)),
        (ENDED, Counters(lost=1, exit_lost=1, free=5)),
    ],
)
def test_count_loss_charges_by_proof(cause: LossCause, expected: Counters) -> None:
    """A loss is counted by its proof, and an expired lease as a free move."""
    assert count_loss(Counters(lost=1, exit_lost=1, free=4), cause) == expected


def test_cleared_forgives_losses_and_nothing_else() -> None:
    """An attempt that reported ends suspicion but refunds no budget."""
    before = Counters(unknown=1, transient=2, lost=3, free=4, exit_lost=1, silent_lost=2, unchanged=1)
    assert cleared(before) == Counters(unknown=1, transient=2, free=4, unchanged=1)
    assert isolation(exit_lost=cleared(before).exit_lost, silent_lost=cleared(before).silent_lost) is Alone.NO


def test_a_job_that_kills_its_process_is_convicted_at_its_third_death() -> None:
    """Counting, isolating and deciding together stop a process killer after three deaths."""
    assert fates_when_always_lost_by(EXIT) == [Retry, Retry, DeadLetter(DeadReason.POISON)]


def test_a_job_that_kills_its_whole_group_is_convicted_at_its_third_death() -> None:
    """Two silent losses put a group killer alone on its worker, and the third convicts it."""
    assert fates_when_always_lost_by(SILENT) == [Retry, Retry, DeadLetter(DeadReason.POISON)]


def test_silence_of_a_stopping_worker_never_convicts() -> None:
    """Whoever asked the worker to stop may have ended it; the loss is counted, and the next attempt runs alone."""
    often = Counters(lost=3, silent_lost=3)
    assert not convicts(SILENT, Alone.WORKER, stopping=True)
    assert isinstance(decide(SILENT, Alone.WORKER, often, stopping=True), Retry)
    assert decide(SILENT, Alone.WORKER, often) == DeadLetter(DeadReason.POISON)
    assert convicts(EXIT, Alone.CHILD, stopping=True), "who dies by itself during a stop still does"


@pytest.mark.parametrize(
    ("announced", "killed", "expected"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_an_end_on_purpose_was_said_before(announced: bool, killed: bool, expected: bool) -> None:
    """The child announced it, or the supervisor killed it; nothing else counts."""
    assert ended_on_purpose(announced=announced, killed_by_supervisor=killed) is expected
