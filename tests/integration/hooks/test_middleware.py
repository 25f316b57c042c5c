"""Middleware: around each enqueue and each attempt, in order, able to refuse and to translate, unable to lie."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_jobs import Attempting, Enqueueing, JobContext, batch
from django_jobs.exceptions import (
    DuplicateJobError,
    HookError,
    IdempotencyConflictError,
    PermanentError,
    Snooze,
    TransientError,
)
from django_jobs.models import Batch, Job
from django_jobs.testing import JobsKit
from tests.carriers import Forgetful, Hiding, Inner, Noting, Raising, Tenant, inside, seen
from tests.databases import Server
from tests.declared import charge, plain, strict
from tests.integration.hooks.conftest import Declare, Use, names, note, noted
from tests.integration.worker.conftest import run_one, the_job

ENQUEUES = [lambda: plain.enqueue(number=1), lambda: plain.enqueue_many([{"number": 1}, {"number": 2}])]


def test_an_enqueue_is_seen_as_it_will_be_stored(database: Server, use: Use) -> None:
    """Type, options, stored arguments with their defaults; and after it, what it answered."""
    use(middleware=(Noting,))

    result = charge.using(priority=7, queue_name="mail", run_after=timedelta(hours=1), tenant="acme").enqueue(
        order_id=1
    )

    (told,) = noted("outer")
    assert isinstance(told, Enqueueing)
    assert (told.job_type, told.priority, told.queue_name, told.tenant) == ("tests.charge", 7, "mail", "acme")
    assert (told.owner, told.run_after, told.database, told.count) == ("billing", timedelta(hours=1), "default", 1)
    assert told.rows == [{"order_id": 1, "amount": 1}]
    assert told.results == [result]
    assert noted("outer ended") == [[result]]
    assert "order_id" not in repr(told)


def test_many_rows_are_one_enqueue(database: Server, use: Use) -> None:
    """All rows of a call are seen at once, with the answer to each; an empty call is none."""
    use(middleware=(Noting,))

    results = charge.enqueue_many([{"order_id": 1}, {"order_id": 1, "amount": 2}])
    charge.enqueue_many([])

    (told,) = noted("outer")
    assert [row["amount"] for row in told.rows] == [1, 2]
    assert told.results == results
    assert [result.outcome for result in results] == ["created", "conflict"]


def test_what_is_seen_changes_nothing(database: Server, use: Use) -> None:
    """The view is frozen, and its rows are copies."""
    use(middleware=(Noting,))
    plain.enqueue(number=1)
    told = noted("outer")[0]

    told.rows[0]["number"] = 9
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.priority = 9

    assert told.rows == [{"number": 1}]


def test_the_first_is_the_outermost(database: Server, use: Use) -> None:
    """Entered in the order of the settings, left the other way round; what they make active is captured."""
    use(middleware=(Noting, Inner), context=(Tenant,))
    plain.enqueue(number=1)

    assert names() == ["outer", "inner", "capture", "inner ended", "outer ended"]


@pytest.mark.parametrize("enqueue", ENQUEUES)
def test_a_middleware_refuses_before_any_statement(database: Server, use: Use, enqueue: Any) -> None:
    """What it raises is what the producer gets, and those outside of it see it too."""
    use(middleware=(Noting, Raising, Inner), context=(Tenant,))
    Raising.before = PermissionError("not today")

    with CaptureQueriesContext(connection) as queries, pytest.raises(PermissionError, match="not today"):
        enqueue()

    assert len(queries) == 0
    assert names() == ["outer", "outer failed"]
    assert not Job.objects.exists()


def test_no_middleware_hides_that_nothing_was_stored(database: Server, use: Use) -> None:
    """An error that a middleware swallows goes on; those outside of it see it too."""
    use(middleware=(Noting, Hiding))
    charge.enqueue(order_id=1)
    strict.enqueue(order_id=1)
    seen.clear()

    with pytest.raises(IdempotencyConflictError):
        charge.enqueue(order_id=1, amount=2)
    with pytest.raises(DuplicateJobError):
        strict.enqueue(order_id=1)

    assert names() == ["outer", "swallowed", "outer failed"] * 2


def test_an_error_of_an_enqueue_can_be_translated(database: Server, use: Use) -> None:
    """A site with errors of its own gives them to its producers."""
    use(middleware=(Raising,))
    charge.enqueue(order_id=1)
    Raising.instead = ValueError("busy")

    with pytest.raises(ValueError, match="busy"):
        charge.enqueue(order_id=1, amount=2)


@pytest.mark.django_db(transaction=True)
def test_an_attempt_is_seen_with_what_it_is_about(database: Server, use: Use, declare: Declare) -> None:
    """Ids, numbers, names and stored arguments; the handler's context is active already."""
    use(middleware=(Noting, Inner), context=(Tenant,))
    with inside("acme"):
        declare(lambda a, b=2: note(), key="k:{a}", subject="s:{a}", owner="billing", atomic=False).enqueue(a=1)
    seen.clear()

    attempt = run_one()

    assert names() == ["outer", "inner", "handler", "inner ended", "outer ended"]
    (told,) = noted("outer")
    assert isinstance(told, Attempting)
    assert (told.job_id, told.attempt_id, told.number, told.generation) == (attempt.job_id, attempt.pk, 1, 1)
    assert (told.key, told.subject, told.owner, told.database) == ("k:1", "s:1", "billing", "default")
    assert told.arguments == {"a": 1, "b": 2}
    assert (told.job_type, told.queue_name, told.priority) == ("tests.handler", "default", 0)
    assert told.correlation_id == str(attempt.job_id)
    assert noted("outer ended") == ["acme"]
    assert "'a'" not in repr(told)


async def coroutine() -> str:
    """Be a coroutine."""
    note()
    return "done"


def returning() -> str:
    """Be a handler with a result."""
    note()
    return "done"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("handler", [returning, coroutine])
@pytest.mark.parametrize("atomic", [True, False])
def test_the_result_passes_through(database: Server, use: Use, declare: Declare, handler: Any, atomic: bool) -> None:
    """It is around the whole run of a coroutine too; what the handler returns is the result."""
    use(middleware=(Noting,))
    declare(handler, atomic=atomic).enqueue()
    run_one()

    assert names()[-3:] == ["outer", "handler", "outer ended"]
    assert json.loads(the_job().payload.result or "") == "done"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [True, False])
def test_no_middleware_makes_a_success_of_an_error(database: Server, use: Use, declare: Declare, atomic: bool) -> None:
    """What the handler raised is recorded although a middleware swallowed it, and an atomic one is undone."""

    def fails() -> None:
        Group.objects.create(name="of the handler")
        raise LookupError("it failed")

    use(middleware=(Noting, Hiding))
    declare(fails, atomic=atomic).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.message) == ("failed", "it failed")
    assert names()[-3:] == ["outer", "swallowed", "outer failed"]
    assert Group.objects.exists() is not atomic


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    ("error", "outcome", "error_class"),
    [
        (RuntimeError("no"), "failed", "unknown"),
        (TransientError("later"), "failed", "transient"),
        (PermanentError("never"), "failed", "permanent"),
        (Snooze(timedelta(minutes=5)), "snoozed", ""),
    ],
)
def test_what_it_raises_is_judged_as_the_handler_s(
    database: Server, use: Use, declare: Declare, place: str, error: Exception, outcome: str, error_class: str
) -> None:
    """Before the handler nothing of it runs; after it, what an atomic one wrote is undone."""
    use(middleware=(Raising,))
    declare(lambda: note() or (Group.objects.create(name="of the handler") and None)).enqueue()
    setattr(Raising, place, error)

    attempt = run_one()

    assert (attempt.outcome, attempt.error_class or "") == (outcome, error_class)
    assert len(noted("handler")) == (place == "after")
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_error_of_the_handler_can_be_translated(database: Server, use: Use, declare: Declare) -> None:
    """An error that says nothing becomes one that is worth another try."""

    def fails() -> None:
        raise LookupError("the cache is cold")

    use(middleware=(Raising,))
    declare(fails).enqueue()
    Raising.instead = TransientError("warming up")

    attempt = run_one()

    assert (attempt.error_class, attempt.message) == ("transient", "warming up")
    assert "the cache is cold" in attempt.traceback


@pytest.mark.django_db(transaction=True)
def test_an_error_after_the_completion_changes_nothing(database: Server, use: Use, declare: Declare) -> None:
    """The success is recorded by then; the error is logged, as one of the handler after its completion is."""

    def completes(context: JobContext) -> None:
        with context.complete():
            note()

    use(middleware=(Raising,))
    declare(completes, takes_context=True).enqueue()
    Raising.after = RuntimeError("too late")

    assert run_one().outcome == "succeeded"
    assert the_job().state == "succeeded"


class Writing(Noting):
    """Writes a row before the handler begins."""

    def around_attempt(self, attempt: Attempting) -> Any:
        """Write it where the handler writes."""
        Group.objects.create(name=f"attempt {attempt.number}")
        return super().around_attempt(attempt)


def test_a_middleware_around_an_atomic_handler_is_in_its_transaction(use: Use, declare: Declare, kit: JobsKit) -> None:
    """Rows that it writes commit with the success, or not at all."""

    def fails_once() -> None:
        note()
        if len(noted("handler")) == 1:
            raise TransientError("once")

    use(middleware=(Writing,))
    declare(fails_once).enqueue()
    kit.run_until_idle()

    assert list(Group.objects.values_list("name", flat=True)) == ["attempt 2"]


@pytest.mark.django_db(transaction=True)
def test_what_is_no_context_manager_is_told(database: Server, use: Use, declare: Declare) -> None:
    """A method that was not decorated is an error with the mend, not a middleware that does nothing."""
    use(middleware=(Forgetful,))
    declare(note).enqueue()

    attempt = run_one()

    assert attempt.error_type.endswith(HookError.__name__)
    assert "around_attempt() of tests.carriers.Forgetful returned generator" in attempt.message
    assert noted("handler") == []


@pytest.mark.django_db(transaction=True)
def test_a_middleware_that_fails_after_a_batch_was_stored_leaves_nothing_open(
    database: Server, use: Use, declare: Declare
) -> None:
    """The batch is undone with it; what the producer does next commits, and is no member of anything."""
    use(middleware=(Raising,))
    handled = declare(note)
    Raising.after = RuntimeError("metrics are away")
    with pytest.raises(RuntimeError, match="metrics"), batch(callback=handled.prepare()):
        raise AssertionError("the block is not entered")
    Raising.after = None

    handled.enqueue()

    assert not connection.in_atomic_block
    assert Batch.objects.count() == 0
    assert Job.objects.get().batch_id is None
