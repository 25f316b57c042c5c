"""Restoring: what the job carries is active in its handler, whatever kind it is, and what cannot be is an error."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from django_jobs import JobContext, job
from django_jobs.exceptions import PermanentError, Snooze, TransientError
from django_jobs.models import Attempt, JobPayload
from tests.carriers import LANGUAGE, TIME_ZONE, Tenant, Unable, inside, seen, tenant
from tests.databases import Server
from tests.integration.hooks.conftest import Declare, Use, note, noted
from tests.integration.worker.conftest import AGAIN, run, run_one, take, the_job

pytestmark = pytest.mark.django_db(transaction=True)


def in_transaction() -> None:
    """Be an atomic handler."""
    seen.append(("atomic", connection.in_atomic_block))
    note()


def with_context(context: JobContext) -> None:
    """Be a handler that completes itself."""
    note()
    with context.complete():
        note()


async def coroutine() -> None:
    """Be a coroutine."""
    note()


@pytest.mark.parametrize(
    ("handler", "options"),
    [(in_transaction, {}), (note, {"atomic": False}), (with_context, {"takes_context": True}), (coroutine, {})],
)
def test_it_is_active_in_the_handler_and_only_there(
    database: Server, use: Use, declare: Declare, handler: Any, options: dict[str, Any]
) -> None:
    """Each kind of handler gets what was active at the enqueue, its thread is afterwards as it was before."""
    use(context=(Tenant, LANGUAGE))
    handled = declare(handler, **options)
    with inside("acme"), translation.override("de"):
        handled.enqueue()

    (after,) = run(take(), after=lambda: (tenant.get(), translation.get_language()))

    assert set(noted("handler")) == {("acme", "de")}
    assert after == (None, "en-us")
    assert the_job().state == "succeeded"


def test_the_time_zone_is_active_too(database: Server, use: Use, declare: Declare) -> None:
    """A handler that formats times does so where the user was."""
    use(context=(TIME_ZONE,))
    handled = declare(lambda: timezone.get_current_timezone_name())
    with timezone.override("Pacific/Auckland"):
        handled.enqueue()
    run_one()

    assert json.loads(the_job().payload.result or "") == "Pacific/Auckland"


def test_it_is_read_with_the_claim(database: Server, use: Use, declare: Declare) -> None:
    """A claim runs as many statements with a context as without."""

    def claiming() -> int:
        handled.enqueue()
        with CaptureQueriesContext(connection) as queries:
            assert take()
        return len(queries)

    handled = declare(note)
    without = claiming()
    use(context=(Tenant,))
    with inside("acme"):
        assert claiming() == without


def test_it_flows_to_what_the_handler_enqueues(database: Server, use: Use, declare: Declare) -> None:
    """A job that is enqueued inside a job carries what is active there."""
    use(context=(Tenant, LANGUAGE))

    @job(type="tests.following")
    def following() -> None:
        note()

    handled = declare(lambda: following.enqueue() and None)
    with inside("acme"), translation.override("de"):
        handled.enqueue()
    run_one()
    run(take())

    assert noted("handler") == [("acme", "de")]


def test_a_job_that_carries_nothing_gets_what_its_process_has(database: Server, use: Use, declare: Declare) -> None:
    """A producer of an older release stored nothing: restore is not called."""
    handled = declare(note)
    with inside("acme"):
        handled.enqueue()
    use(context=(Tenant, LANGUAGE, Unable))
    Unable.at_restore = AssertionError("restore was called")

    assert run_one().outcome == "succeeded"
    assert noted("handler") == [(None, "en-us")]


def test_an_unknown_name_is_left_out_and_told_once(
    database: Server, use: Use, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    """A propagator that this code does not have stops no job; a name from a row is one line of a log."""
    use(context=(Tenant,))
    handled = declare(note)
    for _ in range(3):
        with inside("acme"):
            handled.enqueue()
    JobPayload.objects.update(context='{"a\\nb":1,"gone":2,"tenant":"acme"}')

    with caplog.at_level(logging.WARNING, logger="django_jobs.worker"):
        run(take(), take(), take())

    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if "Jobs carry" in line] == [
        r"Jobs carry 'a\nb', for which CONTEXT names no propagator; it is left out",
        "Jobs carry 'gone', for which CONTEXT names no propagator; it is left out",
    ]
    assert noted("handler") == [("acme", "en-us")] * 3


@pytest.mark.parametrize(
    ("error", "states", "error_class"),
    [
        (RuntimeError("no"), AGAIN, "unknown"),
        (ConnectionError("away"), AGAIN, "transient"),
        (PermanentError("gone"), {"dead_lettered"}, "permanent"),
    ],
)
def test_a_restore_that_fails_is_a_failed_attempt(
    database: Server, use: Use, declare: Declare, error: Exception, states: set[str], error_class: str
) -> None:
    """No line of the handler runs; the error is judged as the handler's, and the record names the propagator."""
    use(context=(Tenant, Unable))
    handled = declare(note)
    handled.enqueue()
    Unable.at_restore = error

    attempt = run_one()

    assert noted("handler") == []
    assert (attempt.outcome, attempt.error_class) == ("failed", error_class)
    assert the_job().state in states
    assert attempt.error_type.endswith(type(error).__name__)
    assert "The propagator 'unable' failed before the handler began." in attempt.traceback


def test_a_restore_may_ask_to_come_back(database: Server, use: Use, declare: Declare) -> None:
    """A tenant that is being moved can put its jobs off."""
    from datetime import timedelta

    use(context=(Unable,))
    handled = declare(note)
    handled.enqueue()
    Unable.at_restore = Snooze(timedelta(minutes=5))

    assert run_one().outcome == "snoozed"
    assert noted("handler") == []


def test_what_is_no_context_manager_is_told(database: Server, use: Use, declare: Declare) -> None:
    """The message says what to do."""
    use(context=(Unable,))
    handled = declare(note)
    handled.enqueue()
    Unable.returned = iter(())

    attempt = run_one()

    assert attempt.error_type.endswith("HookError")
    assert "decorate it with contextlib.contextmanager" in attempt.message
    assert noted("handler") == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_a_text_that_is_no_context_runs_no_handler(database: Server, use: Use, declare: Declare, text: str) -> None:
    """A handler never runs under half of its context: the job is a dead letter, as with broken arguments."""
    use(context=(Tenant,))
    declare(note).enqueue()
    JobPayload.objects.update(context=text)

    attempt = run_one()

    assert noted("handler") == []
    assert (the_job().state, the_job().dead_reason) == ("dead_lettered", "payload")
    assert "The stored context is" in attempt.message


def test_what_leaving_raises_undoes_an_atomic_handler(database: Server, use: Use, declare: Declare) -> None:
    """An error on the way out comes before the success: nothing of the handler is committed."""

    class Late:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            raise TransientError("too late")

    use(context=(Unable,))
    declare(lambda: note() or _insert()).enqueue()
    Unable.returned = Late()
    run_one()

    assert len(noted("handler")) == 1
    assert the_job().state in AGAIN
    assert Attempt.objects.get().error_class == "transient"
    assert not _inserted()


def _insert() -> None:
    JobPayload.objects.filter(error_text="written by the handler").delete()
    JobPayload.objects.update(key_scope="written by the handler")


def _inserted() -> bool:
    with transaction.atomic():
        return JobPayload.objects.filter(key_scope="written by the handler").exists()
