"""Faults in the process of the test: a crash is no kinder than ``kill -9``, and a fault that never came is a failure."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from django_jobs import JobContext, telemetry
from django_jobs.exceptions import KitError
from django_jobs.models import Attempt
from django_jobs.testing import JobsFaults, JobsKit, SimulatedCrash
from tests.integration.testing.conftest import Declare


@pytest.fixture
def plain(declare: Declare) -> Any:
    """A handler that writes one row in the transaction of its success."""

    def plain() -> None:
        Group.objects.create(name="row")

    return declare(plain)


@pytest.mark.parametrize("point", ["claim.after_commit", "handler.before", "handler.after", "finish.after_update"])
def test_a_crash_before_the_commit_leaves_nothing(jobs: JobsKit, plain: Any, point: str) -> None:
    """The rows of the attempt are gone, it is lost, and the next attempt writes them once."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        faults.crash_at(point)
        report = jobs.run_one()
        assert (report.outcome, report.job_state, Group.objects.count()) == ("", "running", 0)
        outcomes = jobs.run_until_idle().outcomes

    assert outcomes == ["lost", "succeeded"]
    assert Group.objects.count() == 1


def test_a_crash_after_the_commit_changes_nothing(jobs: JobsKit, plain: Any) -> None:
    """What was committed stays, and nothing runs again."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        faults.crash_at("finish.after_commit")
        assert jobs.run_until_idle().outcomes == ["succeeded"]

    assert Group.objects.count() == 1


@pytest.mark.filterwarnings("ignore::django_jobs.testing.RepeatableWriteWarning")
def test_a_dead_handler_cannot_write(jobs: JobsKit, declare: Declare, caplog: pytest.LogCaptureFixture) -> None:
    """Its ``except BaseException`` and ``finally`` run here, but reach neither database, log nor telemetry."""
    told: list[str] = []
    refused: list[type[BaseException]] = []

    def stubborn(context: JobContext) -> None:
        if context.attempt > 1:
            return
        try:
            context.progress(1)
        except BaseException:
            logging.getLogger("shop").error("still here")
            telemetry.emit("shop.still_here")
            for _ in range(2):
                try:
                    Group.objects.create(name="after death")
                except BaseException as error:
                    refused.append(type(error))

    declare(stubborn, takes_context=True).enqueue()
    end = telemetry.subscribe(lambda event, _: told.append(event))

    with JobsFaults(jobs) as faults:
        faults.crash_at("handler.progress")
        outcomes = jobs.run_until_idle().outcomes
    end()

    assert outcomes == ["lost", "succeeded"]
    assert refused == [SimulatedCrash, SimulatedCrash]
    assert not Group.objects.exists()
    assert "shop.still_here" not in told
    assert "still here" not in caplog.text


def test_a_lost_reply_is_settled(jobs: JobsKit, plain: Any) -> None:
    """The worker finds out that its COMMIT was done: one attempt, one row."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        faults.drop_connection_at("finish.after_update", phase="reply")
        assert jobs.run_until_idle().outcomes == ["succeeded"]

    assert Group.objects.count() == 1


def test_a_lost_request_is_settled(jobs: JobsKit, plain: Any) -> None:
    """The worker finds out that its COMMIT was not done, and runs the job again: one row."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        faults.drop_connection_at("finish.after_update", phase="request")
        assert jobs.run_until_idle().outcomes == ["failed", "succeeded"]

    assert Group.objects.count() == 1


@pytest.mark.parametrize("point", ["claim.after_commit", "handler.before", "finish.before", "finish.after_update"])
def test_a_paused_attempt_is_refused(jobs: JobsKit, plain: Any, point: str) -> None:
    """Another attempt succeeds meanwhile; the old one goes on, is refused, and writes nothing."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        pause = faults.pause_at(point)
        assert jobs.run_until_idle().outcomes == ["lost", "succeeded"]
        assert pause.is_paused
        old = pause.resume()

    assert old is not None
    assert (old.number, old.outcome, old.job_state) == (1, "lost", "succeeded")
    assert Attempt.objects.get(number=1).refused_count == 1
    assert Group.objects.count() == 1


def test_an_error_of_our_own_is_raised(jobs: JobsKit, plain: Any) -> None:
    """An error at a point fails the attempt."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        faults.raise_at("handler.after", ValueError("planted"))
        report = jobs.run_until_idle()

    assert report.outcomes == ["failed", "succeeded"]
    assert report.attempts[0].error == "planted"


def test_a_delay_moves_the_clock(jobs: JobsKit, declare: Declare) -> None:
    """Time passes inside the handler, for its budget too."""
    left: list[timedelta] = []

    def slow(context: JobContext) -> None:
        left.append(context.remaining)
        context.progress(1)
        left.append(context.remaining)

    declare(slow, takes_context=True, budget=timedelta(minutes=5)).enqueue()

    with JobsFaults(jobs) as faults:
        faults.delay_at("handler.progress", timedelta(minutes=2))
        jobs.run_one()

    assert left[0] > timedelta(minutes=4)
    assert len(left) == 2


def test_a_fault_that_never_came_is_told(jobs: JobsKit, plain: Any) -> None:
    """The message names the fault, and what was reached instead."""
    plain.enqueue()

    faults = JobsFaults(jobs, strict=False)
    with faults:
        faults.crash_at("effect.after_call", nth=2)
        faults.must_reach("handler.progress")
        jobs.run_until_idle()

    with pytest.raises(AssertionError) as told:
        faults.check()

    text = str(told.value)
    assert "crash_at('effect.after_call', nth=2) never happened." in text
    assert "'handler.progress' was never reached." in text
    assert "  handler.after\n" in text
    assert "handler.after" in faults.points_reached


def test_a_fault_that_came_hides_no_other_error(jobs: JobsKit) -> None:
    """What the test itself raised passes, although a fault never came."""

    def fails() -> None:
        with JobsFaults(jobs) as faults:
            faults.must_reach("handler.before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()


def test_the_end_fails_by_itself(jobs: JobsKit) -> None:
    """Without an error of the test's own, leaving the block does."""

    def ends() -> None:
        with JobsFaults(jobs) as faults:
            faults.must_reach("handler.before")

    with pytest.raises(AssertionError, match=r"(?s)never reached.*nothing: no job ran"):
        ends()


def test_a_pause_is_resumed_once(jobs: JobsKit, plain: Any) -> None:
    """To resume what is not paused is an error, and what nobody resumed is ended with the test."""
    plain.enqueue()

    with JobsFaults(jobs) as faults:
        pause = faults.pause_at("handler.before")
        with pytest.raises(KitError, match="Nothing is paused here"):
            pause.resume()
        jobs.run_one()
        assert pause.is_paused

    assert not pause.is_paused
    assert jobs.run_until_idle().outcomes == ["lost", "succeeded"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda faults: faults.crash_at("handler.nowhere"),
        lambda faults: faults.must_reach("nowhere"),
    ],
)
def test_points_are_checked(jobs: JobsKit, wrong: Any) -> None:
    """A point that does not exist is told when it is named."""
    with JobsFaults(jobs) as faults, pytest.raises(ValueError, match="There is no fault point"):
        wrong(faults)


def test_arguments_are_checked(jobs: JobsKit) -> None:
    """So are the number and the phase."""
    with JobsFaults(jobs) as faults:
        with pytest.raises(KitError, match="from 1 on"):
            faults.crash_at("handler.before", nth=0)
        with pytest.raises(KitError, match="with the request or the reply"):
            faults.drop_connection_at("handler.before", phase="both")  # type: ignore[arg-type]


def test_only_an_attempt_can_be_paused(jobs: JobsKit, plain: Any) -> None:
    """Who takes back a lost attempt has no thread of its own; such a pause never happened, and the check says so."""
    plain.enqueue()

    with JobsFaults(jobs, strict=False) as faults:
        faults.crash_at("handler.before")
        pause = faults.pause_at("reap.after_select")
        outcomes = jobs.run_until_idle().outcomes

    assert outcomes == ["lost", "succeeded"]
    assert not pause.is_paused
    with pytest.raises(AssertionError, match="never happened"):
        faults.check()
