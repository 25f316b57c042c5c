"""Running jobs inside a test: the same outcomes as under a worker, in the thread and on the connection of the test."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction

from django_jobs import JobContext
from django_jobs.exceptions import PermanentError, Snooze, SoftTimeoutError, TransientError
from django_jobs.models import Attempt
from django_jobs.testing import JobsClock, JobsKit, running
from tests.integration.testing.conftest import Declare


def test_r68_a_job_runs_in_the_thread_of_the_test(jobs: JobsKit, declare: Declare) -> None:
    """R68: an ordinary enqueue, one attempt in this thread, rows and result there afterwards."""
    threads = []

    def add(name: str) -> dict[str, str]:
        threads.append(threading.current_thread())
        Group.objects.create(name=name)
        return {"made": name}

    declare(add).enqueue(name="ones")

    report = jobs.run_one()

    assert threads == [threading.current_thread()]
    assert (report.outcome, report.job_state, report.result) == ("succeeded", "succeeded", {"made": "ones"})
    assert Group.objects.filter(name="ones").exists()
    assert Attempt.objects.get().outcome == "succeeded"


def test_r68_retries_take_place_by_moving_the_clock(jobs: JobsKit, jobs_clock: JobsClock, declare: Declare) -> None:
    """R68: a handler that fails twice succeeds at the third attempt, and the clock went through the backoff."""
    tries = []

    def flaky() -> None:
        tries.append(jobs_clock.now())
        if len(tries) < 3:
            raise TransientError("not yet")

    declare(flaky).enqueue()

    report = jobs.run_until_idle()

    assert report.outcomes == ["failed", "failed", "succeeded"]
    assert [attempt.error for attempt in report.failures] == ["not yet", "not yet"]
    assert tries[0] < tries[1] < tries[2]


@pytest.mark.filterwarnings("ignore:A handler wrote to auth_group outside")
@pytest.mark.parametrize("atomic", [True, False])
def test_time_of_a_handler_is_up_when_the_clock_says_so(
    jobs: JobsKit, jobs_clock: JobsClock, declare: Declare, atomic: bool
) -> None:
    """A handler that asks for it is told as in a worker, and what it writes afterwards is there."""

    def slow() -> str:
        try:
            with transaction.atomic():
                Group.objects.create(name="first")
                jobs_clock.tick(timedelta(seconds=61))
                Group.objects.create(name="second")
        except SoftTimeoutError:
            Group.objects.create(name="third")
            return "in good order"
        return "not told"

    declare(slow, soft_timeout=True, atomic=atomic).enqueue()

    assert jobs.run_one().result == "in good order"
    assert set(Group.objects.values_list("name", flat=True)) == {"third"}


def test_what_becomes_due_while_the_kit_looks_is_run(
    jobs: JobsKit, jobs_clock: JobsClock, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry that becomes due after the claim has looked, and before the kit asks what is next, is not forgotten."""
    tries: list[int] = []

    def flaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise TransientError("not yet")

    look = running.run_due

    def slow(using: str) -> running.Turn:
        turn = look(using)
        if not turn.did_something:
            jobs_clock.tick(timedelta(hours=1))
        return turn

    monkeypatch.setattr(running, "run_due", slow)
    declare(flaky).enqueue()

    assert jobs.run_until_idle().outcomes == ["failed", "succeeded"]


def test_r68_a_dead_letter_is_seen(jobs: JobsKit, declare: Declare) -> None:
    """R68: what a handler raised is told with its traceback, and its job is among the dead letters."""

    def broken() -> None:
        raise PermanentError("no such order")

    declare(broken).enqueue()

    report = jobs.drain()

    (dead,) = report.dead_letters
    assert (dead.error_type, dead.error, dead.dead_reason) == (
        "django_jobs.exceptions.PermanentError",
        "no such order",
        "permanent",
    )
    with pytest.raises(AssertionError, match=r"(?s)1 of 1 attempts did not succeed.*no such order.*Traceback"):
        report.assert_succeeded()


def test_r68_rows_of_a_failed_attempt_are_taken_back(jobs: JobsKit, declare: Declare) -> None:
    """R68: what a plain handler wrote before it failed is gone, and what the test wrote is there."""
    Group.objects.create(name="of the test")

    def half() -> None:
        Group.objects.create(name="half")
        raise PermanentError("no")

    declare(half).enqueue()

    jobs.drain()

    assert list(Group.objects.values_list("name", flat=True)) == ["of the test"]


def test_r68_hooks_run_when_the_handler_commits(jobs: JobsKit, declare: Declare) -> None:
    """R68: what a handler leaves to be run on commit runs, after a success only; the test's own waits for its commit."""
    ran: list[str] = []

    def hooked(fails: bool) -> None:
        transaction.on_commit(lambda: ran.append(f"fails={fails}"))
        if fails:
            raise PermanentError("no")

    handler = declare(hooked)
    handler.enqueue(fails=True)
    handler.enqueue(fails=False)

    jobs.drain()

    assert ran == ["fails=False"]


@pytest.mark.filterwarnings("ignore::django_jobs.testing.RepeatableWriteWarning")
def test_r68_a_failing_statement_outside_of_a_transaction_spoils_nothing(jobs: JobsKit, declare: Declare) -> None:
    """R68: a handler may catch an IntegrityError outside of atomic(), as it may under a worker."""
    Group.objects.bulk_create([Group(name="taken"), Group(name="other")])

    def collides(context: JobContext) -> None:
        with pytest.raises(IntegrityError):
            Group.objects.filter(name="other").update(name="taken")
        with context.complete() as done:
            done.result = Group.objects.count()

    declare(collides, takes_context=True).enqueue()

    assert jobs.run_one().result == 2


def test_r68_contexts_complete_step_and_snooze(jobs: JobsKit, declare: Declare) -> None:
    """R68: steps are kept over attempts, a snooze is waited for by the clock, and completion commits all."""
    made = []

    def steps(context: JobContext) -> None:
        def make() -> int:
            made.append(Group.objects.create(name="step").pk)
            return len(made)

        first = context.step("make", make)
        if context.attempt == 1:
            raise Snooze(timedelta(hours=2))
        with context.complete() as done:
            done.result = first

    declare(steps, takes_context=True).enqueue()

    report = jobs.run_until_idle()

    assert report.outcomes == ["snoozed", "succeeded"]
    assert (report.attempts[-1].result, len(made)) == (1, 1)


def test_r68_a_lost_attempt_is_taken_back(jobs: JobsKit, jobs_clock: JobsClock, declare: Declare) -> None:
    """R68: the clock moves leases too: an attempt whose worker died is lost, and the next one succeeds."""
    before = jobs_clock.now()
    ran = []

    def runs() -> None:
        ran.append(1)

    declare(runs).enqueue()
    jobs.lose_one()
    assert len(jobs.drain()) == 0

    report = jobs.run_until_idle()

    assert report.outcomes == ["lost", "succeeded"]
    assert ran == [1]
    assert jobs_clock.now() - before >= timedelta(seconds=20)


def test_the_clock_goes_on_to_the_next_token_of_a_resource(
    jobs: JobsKit, jobs_clock: JobsClock, declare: Declare, settings: Any
) -> None:
    """Jobs that wait for a rate run one after the other, at its pace on the clock of the test."""
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "RESOURCES": {"api": {"rate": "1/m"}}}
    tries = []

    def call() -> None:
        tries.append(jobs_clock.now())

    job = declare(call, resource="api")
    for _ in range(3):
        job.enqueue()

    report = jobs.run_until_idle()

    assert report.outcomes == ["succeeded"] * 3
    assert [after - before > timedelta(seconds=55) for before, after in pairwise(tries)] == [True, True]
