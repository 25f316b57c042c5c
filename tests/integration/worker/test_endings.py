"""Every way in which a handler can end, and what it leaves to the next job: nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.utils import timezone, translation

from django_jobs import JobContext
from django_jobs.domain.identity import fingerprint
from django_jobs.exceptions import LeaseLostError, Snooze
from django_jobs.models import Attempt, Job, JobPayload
from tests.integration.worker.conftest import JOB_TYPE, Declare, run, run_one, take, the_job, write
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
LANGUAGE = "de"


class UnspeakableError(Exception):
    """An error that cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


def deep() -> None:
    """Recurse without an end."""
    deep()


ENDS: dict[str, Callable[[], Any]] = {
    "SystemExit": lambda: _raise(SystemExit(3)),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raise(GeneratorExit()),
    "RecursionError": deep,
    "ExceptionGroup": lambda: _raise(ExceptionGroup("several", [ValueError("a"), KeyError("b")])),
    "UnspeakableError": lambda: _raise(UnspeakableError()),
    "StopIteration": lambda: _raise(StopIteration()),
}


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("inside", [False, True], ids=["plain", "in-completion"])
def test_f17_every_exception_ends_the_attempt_and_never_the_thread(
    declare: Declare, table: Table, name: str, inside: bool
) -> None:
    """Whatever a handler raises is recorded as a failure with its type, and what it wrote is rolled back."""

    def failing(context: JobContext) -> None:
        with context.complete():
            write(1)
            ENDS[name]()

    def failing_plain() -> None:
        write(1)
        ENDS[name]()

    declare(failing if inside else failing_plain, takes_context=inside).enqueue()

    attempt = run_one()

    assert attempt.outcome == "failed"
    assert attempt.error_type.endswith(name)
    assert attempt.traceback
    assert table() == []
    assert the_job().unknown_count == 1


def test_nothing_leaks_to_the_next_job(declare: Declare, table: Table) -> None:
    """Language, time zone, context variables and an open transaction of one job are gone before the next."""
    variable: ContextVar[str] = ContextVar("leak", default="clean")

    def dirty(context: JobContext) -> None:
        translation.activate(LANGUAGE)
        timezone.activate("Asia/Tokyo")
        variable.set("dirty")
        transaction.atomic().__enter__()
        write(1)

    def look() -> tuple[Any, ...]:
        return (
            translation.get_language(),
            timezone.get_current_timezone_name(),
            variable.get(),
            connection.in_atomic_block,
            connection.get_autocommit(),
        )

    handler = declare(dirty, takes_context=True)
    handler.enqueue()
    attempt = take()

    seen = run(attempt, after=look)

    assert seen == [("en-us", "UTC", "clean", False, True)]
    row = Attempt.objects.get()
    assert row.outcome == "failed", "rows that were rolled back are no success"
    assert "with a transaction open on default" in row.message
    assert table() == []


def test_f29_switched_autocommit_does_not_leak(declare: Declare, table: Table) -> None:
    """A handler that leaves autocommit off fails, and the next job in its thread commits as usual."""

    def switching(off: bool) -> None:
        if off:
            transaction.set_autocommit(False)
        write(int(off))

    handler = declare(switching, atomic=False)
    handler.enqueue(off=True)
    first = take()
    handler.enqueue(off=False)
    second = take()

    run(first, second)

    assert list(Attempt.objects.order_by("started_at").values_list("outcome", flat=True)) == ["failed", "succeeded"]
    assert table() == [0]


def test_transaction_entered_inside_an_atomic_handler_is_a_failure(declare: Declare, table: Table) -> None:
    """A handler that enters a block and does not leave it cannot commit: a failure, not a success without its rows."""

    def unbalanced() -> None:
        write(1)
        transaction.atomic().__enter__()

    declare(unbalanced).enqueue()

    attempt = run_one()

    assert attempt.outcome == "failed"
    assert "did not leave" in attempt.message
    assert table() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"arguments": "{not json"}, "fingerprint differs"),
        ({"arguments": '{"n": 2}'}, "fingerprint differs"),
        (None, "payload row of this job is missing"),
    ],
    ids=["not-json", "other-arguments", "no-row"],
)
def test_f32_changed_payload_is_dead_lettered_before_any_code_runs(
    declare: Declare, table: Table, change: dict[str, Any] | None, told: str
) -> None:
    """One attempt, no handler code, dead letter 'payload' that says what is wrong."""
    declare(write).enqueue(n=1)
    if change is None:
        JobPayload.objects.all().delete()
    else:
        JobPayload.objects.update(**change)

    attempt = run_one()

    job = Job.objects.get()
    assert (job.state, job.dead_reason, job.fence) == ("dead_lettered", "payload", 1)
    assert told in attempt.message
    assert table() == []


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"m":1}', "m"), ('{"n":"x"}', "'n'"), ("[1]", "list"), ("{]", "not JSON")],
    ids=["other-name", "wrong-type", "no-object", "not-json"],
)
def test_f32_payload_that_does_not_fit_names_the_field(declare: Declare, text: str, told: str) -> None:
    """A stored payload with a right fingerprint that does not fit the handler is dead-lettered with the field's name."""

    def typed(n: Decimal) -> None:
        raise AssertionError("no handler code runs")

    declare(typed).enqueue(n=Decimal(1))
    JobPayload.objects.update(arguments=text)
    Job.objects.update(payload_fingerprint=fingerprint(text))

    attempt = run_one()

    job = Job.objects.get()
    assert (job.state, job.dead_reason) == ("dead_lettered", "payload")
    assert told in attempt.message


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"bytes"], ids=["object", "set", "nan", "bytes"])
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
def test_result_that_cannot_be_stored_is_told(declare: Declare, table: Table, value: object, atomic: bool) -> None:
    """It is dead-lettered with the reason; an atomic handler's rows go with it, and nothing is stuck."""

    def returning() -> object:
        write(1)
        return value

    declare(returning, atomic=atomic).enqueue()

    attempt = run_one()

    assert the_job().dead_reason == "payload"
    assert "result" in attempt.message
    assert table() == ([] if atomic else [1])


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
def test_result_is_stored(declare: Declare, atomic: bool) -> None:
    """What a handler returns is stored as canonical JSON with the success."""
    declare(lambda: {"b": 1, "a": [None]}, atomic=atomic).enqueue()

    run_one()

    assert json.loads(the_job().payload.result) == {"a": [None], "b": 1}


def test_snooze_is_charged_to_nothing_but_free_moves(declare: Declare) -> None:
    """A handler that asks to run later is no failure."""
    declare(lambda: _raise(Snooze(timedelta(minutes=5)))).enqueue()

    attempt = run_one()

    job = the_job()
    assert (attempt.outcome, job.state, job.free_count, job.unknown_count) == ("snoozed", "scheduled", 1, 0)


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
def test_finish_after_the_job_was_taken_away_is_refused_and_counted(
    declare: Declare, table: Table, atomic: bool
) -> None:
    """A handler that outlived its ownership changes nothing: refused, counted on its attempt, told by telemetry."""

    def slow() -> None:
        write(1)
        stolen.wait(20)

    stolen = threading.Event()
    declare(slow, atomic=atomic).enqueue()
    attempt = take()
    Job.objects.filter(pk=attempt.job_id).update(attempt_id=attempt.job_id, fence=2)
    stolen.set()

    with Told() as told:
        run(attempt)

    row = Attempt.objects.get(pk=attempt.attempt_id)
    assert (row.refused_count, row.refused_operation) == (1, "succeed")
    assert told.named("lease.refused")
    assert the_job().state == "running"
    assert table() == ([] if atomic else [1])


def test_error_that_cannot_be_recorded_does_not_leave_the_job_running(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When recording an end fails, a plain failure is recorded instead."""
    from django_jobs.worker import execute

    def broken(attempt: object, error: BaseException) -> None:
        raise RuntimeError("a defect of the recorder")

    monkeypatch.setattr(execute, "record_error", broken)
    declare(lambda: _raise(ValueError("no"))).enqueue()

    attempt = run_one()

    assert attempt.outcome == "failed"
    assert "RuntimeError" in attempt.message


def test_handler_that_raises_lease_lost_itself_is_not_believed_to_own_the_job(declare: Declare) -> None:
    """LeaseLostError from a handler ends its attempt without a write; the lease decides what follows."""
    declare(lambda: _raise(LeaseLostError("mine"))).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.refused_count) == (None, 1)
    assert Job.objects.get(job_type=JOB_TYPE).state == "running"


@pytest.mark.postgres
def test_connection_that_the_server_ended_while_idle_costs_no_attempt(declare: Declare, table: Table) -> None:
    """Between two jobs of a thread its connection is ended: the second job does not pay for it."""

    def end_idle() -> None:
        with connections["default"].copy().cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])

    handler = declare(write)
    handler.enqueue(n=1)
    first = take()
    handler.enqueue(n=2)
    second = take()

    run(first, second, after=end_idle)

    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["succeeded"] * 2
    assert table() == [1, 2]
