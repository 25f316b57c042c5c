"""Where the kit works and where it refuses: transactions of the test, handlers, queries, sessions, other clocks."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.core import mail
from django.db import IntegrityError, connection, connections, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from django_jobs import JobContext, clock
from django_jobs.define.registry import unregister
from django_jobs.exceptions import KitError, QueueFullError
from django_jobs.models import Job
from django_jobs.store.pauses import pause
from django_jobs.testing import JobsClock, JobsKit
from tests.integration.testing.conftest import Declare


def nothing() -> None:
    """Do nothing."""


def test_r68_a_transaction_of_the_test_is_refused(jobs: JobsKit, declare: Declare) -> None:
    """R68: inside atomic() no worker would see the job, so the kit says where to let it run."""
    with transaction.atomic():
        declare(nothing).enqueue()
        with pytest.raises(KitError, match=r"after the atomic\(\) block"):
            jobs.run_one()

    assert jobs.run_one().succeeded


@pytest.mark.parametrize("opened", ["rolled_back"], indirect=True)
def test_r68_a_broken_transaction_of_the_test_is_told(jobs: JobsKit, declare: Declare, vendor: str) -> None:
    """R68: after an error that PostgreSQL answers by refusing all else, the kit says what to do about it."""
    Group.objects.bulk_create([Group(name="one"), Group(name="two")])
    declare(nothing).enqueue()
    with pytest.raises(IntegrityError):
        Group.objects.filter(name="two").update(name="one")

    with pytest.raises(KitError, match="broke the transaction of the test"):
        jobs.run_one()


def test_r68_a_handler_lets_no_jobs_run(jobs: JobsKit, declare: Declare) -> None:
    """R68: the kit inside a handler is an error that fails the attempt."""

    def nested() -> None:
        jobs.run_until_idle()

    declare(nested).enqueue()

    (failure, *_) = jobs.run_until_idle().failures

    assert "A handler cannot let jobs run" in failure.error


def test_r68_on_commit_is_helped_by_django(jobs: JobsKit, declare: Declare, opened: str) -> None:
    """R68: what the code under test leaves for the commit runs by captureOnCommitCallbacks, and its job then."""
    handler = declare(nothing)

    with TestCase.captureOnCommitCallbacks(execute=True) as callbacks, transaction.atomic():
        transaction.on_commit(handler.enqueue)

    assert len(callbacks) == (1 if opened == "rolled_back" else 0)
    assert jobs.run_until_idle().outcomes == ["succeeded"]


@pytest.mark.parametrize("opened", ["rolled_back"], indirect=True)
def test_r68_running_leaves_the_hooks_of_the_test(jobs: JobsKit, declare: Declare, opened: str) -> None:
    """R68: hooks of the test's own transaction are neither run nor dropped by a job that runs meanwhile."""
    ran: list[int] = []
    declare(nothing).enqueue()

    with TestCase.captureOnCommitCallbacks() as callbacks:
        transaction.on_commit(lambda: ran.append(1))
        jobs.run_until_idle()

    assert (len(callbacks), ran) == (1, [])


def test_r68_nothing_due_says_what_waits(jobs: JobsKit, declare: Declare, opened: str) -> None:
    """R68: the error names the job that is due later, and hooks that no commit will run."""
    handler = declare(nothing)
    handler.using(run_after=timedelta(hours=3)).enqueue()
    with pytest.raises(KitError, match=r"No job is due. The next one is in 2:59:59"):
        jobs.run_one()

    if opened == "rolled_back":
        transaction.on_commit(handler.enqueue)
        with pytest.raises(KitError, match="1 functions wait for the commit"):
            jobs.run_one()


def test_r68_queries_of_jobs_are_not_those_of_the_test(jobs: JobsKit, declare: Declare) -> None:
    """R68: a count of queries around a run is that of the test, and the log of before is still there."""
    handler = declare(nothing)

    with CaptureQueriesContext(connection) as counted:
        handler.enqueue()
        before = len(counted)
        jobs.run_until_idle()
        jobs.drain()
        Group.objects.count()

    (ours,) = counted.captured_queries[before:]
    assert "auth_group" in ours["sql"]


def test_r68_the_connection_is_as_it_was(jobs: JobsKit, declare: Declare) -> None:
    """R68: after a run the test has its own connection object, without anything that the worker put on it."""
    before, names = connections["default"], set(vars(connections["default"]))
    declare(nothing).enqueue()

    jobs.run_until_idle()

    assert connections["default"] is before
    assert set(vars(before)) - names == set()


@pytest.mark.parametrize("opened", ["rolled_back"], indirect=True)
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
def test_r68_a_handler_cannot_end_the_transaction_of_the_test(
    jobs: JobsKit, declare: Declare, opened: str, statement: str
) -> None:
    """R68: an end that a handler writes itself fails its attempt, and the rows of the test are still there."""
    Group.objects.create(name="of the test")

    def ends() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    declare(ends).enqueue()

    (failure, *_) = jobs.run_until_idle().failures

    assert "ended the transaction" in failure.error
    assert Group.objects.filter(name="of the test").exists()


@pytest.mark.parametrize("opened", ["rolled_back"], indirect=True)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_r68_an_end_on_the_driver_is_told(jobs: JobsKit, declare: Declare, in_transaction: bool) -> None:
    """R68: a handler that ends the test's transaction behind Django's back ends the run with an error, and at once."""

    def ends(context: JobContext) -> None:
        with transaction.atomic() if in_transaction else nullcontext():
            connection.connection.rollback()

    declare(ends, takes_context=True).enqueue()

    with pytest.raises(KitError, match="transaction of the test"):
        jobs.run_until_idle()


@pytest.mark.filterwarnings("ignore::django_jobs.testing.RepeatableWriteWarning")
def test_r68_a_transaction_left_open_is_told(jobs: JobsKit, declare: Declare) -> None:
    """R68: a handler that does not leave its transaction fails, and its rows are taken back."""

    def leaves(context: JobContext) -> None:
        transaction.atomic().__enter__()
        Group.objects.create(name="left")

    declare(leaves, takes_context=True).enqueue()

    (failure, *_) = jobs.run_until_idle().failures

    assert "returned with a transaction open" in failure.error
    assert not Group.objects.filter(name="left").exists()


def test_r68_a_handler_may_close_its_connection(jobs: JobsKit, declare: Declare) -> None:
    """R68: closing the connection in a handler costs the test nothing."""
    Group.objects.create(name="of the test")

    def closes(context: JobContext) -> None:
        connection.close()
        with context.complete() as done:
            done.result = Group.objects.count()

    declare(closes, takes_context=True).enqueue()

    assert jobs.run_one().result == 1
    assert Group.objects.count() == 1


def test_r68_constraints_are_checked_when_the_handler_commits(jobs: JobsKit, declare: Declare) -> None:
    """R68: a foreign key that leads nowhere fails the attempt, as its COMMIT would."""

    def dangles() -> None:
        group = Group.objects.create(name="g")
        group.permissions.through.objects.create(group_id=group.pk, permission_id=10**6)

    declare(dangles).enqueue()

    (failure, *_) = jobs.run_until_idle().failures

    assert failure.error_type.endswith("IntegrityError")
    assert not Group.objects.exists()


@pytest.mark.filterwarnings("ignore::django_jobs.testing.RepeatableWriteWarning")
def test_r68_a_swallowed_error_takes_the_transaction_back(jobs: JobsKit, declare: Declare, vendor: str) -> None:
    """R68: what PostgreSQL would roll back at the COMMIT is gone, and SQLite keeps what it would keep."""

    def swallows(context: JobContext) -> None:
        with suppress(IntegrityError), transaction.atomic():
            Group.objects.create(name="kept on SQLite")
            with connection.cursor() as cursor, suppress(IntegrityError):
                cursor.execute("INSERT INTO auth_group (name) VALUES ('kept on SQLite')")

    declare(swallows, takes_context=True).enqueue()

    assert jobs.run_one().succeeded
    assert Group.objects.count() == (0 if vendor == "postgresql" else 1)


@pytest.mark.postgres
def test_r68_limits_of_a_transaction_end_with_it(jobs: JobsKit, declare: Declare) -> None:
    """R68: the time-outs that the worker sets for its transactions do not go on for the rest of the test."""

    def completes(context: JobContext) -> None:
        with context.complete():
            Group.objects.count()

    declare(completes, takes_context=True).enqueue()
    names = ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout")
    look = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"

    def limits() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(look)
            return cursor.fetchone()

    before = limits()
    jobs.lose_one()
    jobs.run_until_idle()

    assert limits() == before


def test_r68_language_and_time_zone_of_the_test_stay(jobs: JobsKit, declare: Declare) -> None:
    """R68: a job runs without the test's language and time zone, which are there again afterwards."""
    seen: list[Any] = []

    def looks() -> None:
        seen.append((translation.get_language(), timezone.get_current_timezone_name()))

    declare(looks).enqueue()
    with translation.override("de"), timezone.override("Asia/Tokyo"):
        jobs.run_one()
        after = (translation.get_language(), timezone.get_current_timezone_name())

    assert after == ("de", "Asia/Tokyo")
    assert seen == [(translation.get_language(), timezone.get_current_timezone_name())]


def test_r68_the_kit_follows_time_machine(jobs: JobsKit, declare: Declare) -> None:
    """R68: who travels with time-machine finds a job for later due there, also when time stands still."""
    declare(nothing).using(run_after=datetime(2031, 1, 1, tzinfo=UTC)).enqueue()
    assert len(jobs.drain()) == 0

    with time_machine.travel(datetime(2031, 1, 1, tzinfo=UTC), tick=False):
        assert jobs.run_one().succeeded
        assert Job.objects.get().finished_at == datetime(2031, 1, 1, tzinfo=UTC)


def test_r68_the_kit_drives_time_machine(jobs: JobsKit, declare: Declare) -> None:
    """R68: with a traveller to drive, handlers see the time to which the kit has moved."""
    seen = []

    def looks() -> None:
        seen.append(datetime.now(UTC))

    with time_machine.travel(datetime(2031, 1, 1, tzinfo=UTC), tick=False) as traveller:
        jobs.clock.drive(traveller.shift)
        declare(looks).using(run_after=timedelta(days=3)).enqueue()
        jobs.run_until_idle()

    assert seen == [datetime(2031, 1, 4, tzinfo=UTC)]


def test_r68_jobs_that_never_rest_are_told(jobs: JobsKit, declare: Declare) -> None:
    """R68: a handler that enqueues itself for ever ends the run with an error that shows the last attempts."""

    def again() -> None:
        handler.enqueue()

    handler = declare(again)
    handler.enqueue()

    with pytest.raises(KitError, match=r"(?s)did not come to rest in 7 attempts.*attempt 1 of kit.again"):
        jobs.run_until_idle(max_attempts=7)


def test_r68_drain_does_not_move_time(jobs: JobsKit, declare: Declare) -> None:
    """R68: what is due later stays there."""
    handler = declare(nothing)
    handler.enqueue()
    handler.using(run_after=timedelta(minutes=1)).enqueue()

    assert len(jobs.drain()) == 1
    assert len(jobs.run_until_idle()) == 1


def test_r68_jobs_held_back_stay_where_they_are(jobs: JobsKit, declare: Declare) -> None:
    """R68: a paused type and a type that this code does not know are neither waited for nor run."""
    before = jobs.clock.now()
    declare(nothing).using(run_after=timedelta(minutes=1)).enqueue()

    def unknown() -> None:
        """Be forgotten."""

    declare(unknown).enqueue()
    unregister("kit.unknown")
    pause("type", "kit.nothing", actor="ada", reason="a test", using="default")

    assert len(jobs.run_until_idle()) == 0
    assert jobs.clock.now() - before < timedelta(seconds=50)


class SteppingClock(JobsClock):
    """A clock that goes on by a second whenever it is asked."""

    def now(self) -> datetime:
        """Return the next second."""
        self._ahead += timedelta(seconds=1)
        return super().now()


def test_r68_what_becomes_due_while_the_kit_looks_is_no_error(opened: str) -> None:
    """R68: the due moment may pass between two looks at the clock, which never goes back."""
    with JobsKit(clock=SteppingClock()) as jobs:
        for halves in range(1, 16):
            soon = jobs.clock.now() + timedelta(seconds=halves / 2)

            assert jobs._skip(soon, soon)
            assert jobs.clock.now() > soon


def test_r68_a_full_queue_of_another_test_is_forgotten(
    opened: str, jobs_clock: JobsClock, declare: Declare, settings: Any
) -> None:
    """R68: the last look at a queue's depth is not taken over from a test whose jobs are gone."""
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "QUEUES": {"small": {"capacity": 1}}}
    handler = declare(nothing, queue_name="small")
    with JobsKit(clock=jobs_clock):
        handler.enqueue()
        jobs_clock.tick(timedelta(seconds=2))
        with pytest.raises(QueueFullError):
            handler.enqueue()
        Job.objects.all().delete()

    with JobsKit(clock=jobs_clock) as jobs:
        handler.enqueue()
        jobs.assert_enqueued(handler, count=1)


def test_r68_enqueued_jobs_are_asked_for(jobs: JobsKit, declare: Declare) -> None:
    """R68: by type or handler, a part of the arguments and the number; the error lists what there is."""

    def send(user_id: int, at: datetime) -> None:
        """Do nothing."""

    handler = declare(send)
    handler.enqueue(user_id=1, at=datetime(2030, 1, 1, tzinfo=UTC))
    handler.enqueue(user_id=2, at=datetime(2030, 1, 1, tzinfo=UTC))

    (job,) = jobs.assert_enqueued(handler, {"user_id": 2, "at": datetime(2030, 1, 1, tzinfo=UTC)}, count=1)
    assert job.state == "queued"
    jobs.assert_enqueued("kit.send", count=2)
    jobs.assert_enqueued("kit.other", count=0)
    with pytest.raises(
        AssertionError, match=r"(?s)Expected at least one of kit.send with \{'user_id': 3\}.*user_id\":1"
    ):
        jobs.assert_enqueued(handler, {"user_id": 3})


def test_r68_the_kit_is_for_tests(opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R68: where no test environment was set up, entering the kit is refused and the clock is left alone."""
    monkeypatch.delattr(mail, "outbox")

    with pytest.raises(KitError, match="works in a test run only"), JobsKit():
        pass

    assert clock.injected() is None


def test_r68_the_kit_is_entered_first(opened: str) -> None:
    """R68: a kit that was not entered says how that is done."""
    with pytest.raises(KitError, match=r"self.enterContext\(JobsKit\(\)\)"):
        JobsKit().run_until_idle()


def test_r68_nothing_to_lose_is_an_error(jobs: JobsKit) -> None:
    """R68: a test that wants to lose an attempt needs a job that is due."""
    with pytest.raises(KitError, match="No job is due that could be lost"):
        jobs.lose_one()


def test_r68_arguments_that_fit_no_more_are_compared_as_stored(jobs: JobsKit, declare: Declare) -> None:
    """R68: a job whose handler has lost a parameter, or is gone, is still asked for by what is stored."""

    def changed(at: datetime) -> None:
        """Be declared."""

    declare(changed).enqueue(at=datetime(2030, 1, 1, tzinfo=UTC))
    unregister("kit.changed")
    jobs.assert_enqueued("kit.changed", {"at": "2030-01-01T00:00:00.000000Z"}, count=1)

    def changed() -> None:  # type: ignore[no-redef]
        """Be declared anew."""

    declare(changed)

    jobs.assert_enqueued("kit.changed", {"at": "2030-01-01T00:00:00.000000Z"}, count=1)


def test_r68_an_end_that_could_not_be_recorded_is_told(
    jobs: JobsKit, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R68: an attempt that is left open is an error of the kit, and no success."""
    declare(nothing).enqueue()
    monkeypatch.setattr("django_jobs.testing.running.execute", lambda attempt: None)

    with pytest.raises(KitError, match=r"The end of attempt 1 of .* could not be recorded"):
        jobs.run_one()


@pytest.mark.postgres
@pytest.mark.parametrize("opened", ["committed"], indirect=True)
def test_r68_a_connection_that_is_gone_is_told(jobs: JobsKit, declare: Declare) -> None:
    """R68: a handler that ends the driver's own connection ends the test with a clear error."""

    def cuts(context: JobContext) -> None:
        connection.connection.close()
        connection.close()
        Group.objects.count()

    declare(cuts, takes_context=True).enqueue()

    with pytest.raises(KitError, match="connection to the database 'default' is gone"):
        jobs.run_one()
    connections["default"].close()


def test_r68_a_clock_is_in_force_once() -> None:
    """R68: a clock that is in force cannot be entered again."""
    with JobsClock() as moved, pytest.raises(KitError, match="in force already"):
        moved.__enter__()


def test_r68_kits_of_one_test_have_one_clock(opened: str, declare: Declare) -> None:
    """R68: a second kit, for another database, moves the clock that is in force, and each runs what is due later."""
    later = declare(nothing).using(run_after=timedelta(days=1))
    later.enqueue()

    with JobsKit() as first, JobsKit() as second:
        assert first.run_until_idle().outcomes == ["succeeded"]
        later.enqueue()
        assert second.run_until_idle().outcomes == ["succeeded"]
        assert abs(first.clock.now() - clock.now()) < timedelta(seconds=5)

    assert clock.injected() is None


def test_r68_the_clock_says_what_it_takes() -> None:
    """R68: only forward, by a timedelta or to an aware time; afterwards the process has its own clock again."""
    with JobsClock() as moved:
        before = moved.now()
        assert moved.tick(timedelta(days=1)) >= before + timedelta(days=1)
        assert moved.move_to(before + timedelta(days=2)) >= before + timedelta(days=2)
        assert abs(clock.now() - moved.now()) < timedelta(seconds=5)
        for wrong in (-timedelta(seconds=1), 5):
            with pytest.raises(KitError):
                moved.tick(wrong)  # type: ignore[arg-type]
        for late in (datetime(2020, 1, 1, tzinfo=UTC), datetime(2090, 1, 1)):  # noqa: DTZ001
            with pytest.raises(KitError):
                moved.move_to(late)

    assert clock.injected() is None
