"""A handler is told that its budget is over, and nothing is broken in two by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobs import Confirmed, JobContext, clock, effect, telemetry
from django_jobs.exceptions import EffectRejected, Snooze, SoftTimeoutError
from django_jobs.models import Attempt, Job, SideEffect
from django_jobs.observe.metrics import Metrics
from django_jobs.worker import soft_timeout
from tests.integration.worker.conftest import AGAIN, Declare, Looks, run, run_one, take, the_job, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("untraced")]

Table = Callable[[], list[int]]
ENOUGH = 10**8  # turns; more than any test lets pass


@pytest.fixture
def told() -> Iterator[list[dict[str, object]]]:
    """Return what telemetry says about handlers that were told."""
    heard: list[dict[str, object]] = []
    end = telemetry.subscribe(lambda event, fields: heard.append(fields) if event == "attempt.soft_timeout" else None)
    yield heard
    end()


def outlast(seconds: float = 61) -> None:
    """Let the budget pass, and compute on and on, as a handler does that has no end."""
    clock.skip(seconds)
    for _ in range(ENOUGH):
        pass
    raise AssertionError("nobody told the handler")


@pytest.mark.parametrize("atomic", [True, False])
def test_handler_that_heeds_it_succeeds(declare: Declare, table: Table, told: list[Any], atomic: bool) -> None:
    """What it writes after it was told is there, in its one transaction or each for itself."""

    def handler() -> str:
        write(1)
        try:
            outlast()
        except SoftTimeoutError:
            write(2)
        return "in good order"

    declare(handler, atomic=atomic, soft_timeout=True).enqueue()
    attempt = run_one()

    assert (attempt.outcome, attempt.over_budget) == ("succeeded", False)  # the database's clock did not skip
    assert table() == [1, 2]
    assert [fields["number"] for fields in told] == [1]
    assert the_job().payload.result == '"in good order"'


def test_handler_that_lets_it_pass_fails_and_is_run_again(declare: Declare, table: Table) -> None:
    """The error is of class unknown, says how long the handler ran, and what was in its transaction is rolled back."""

    def handler() -> None:
        write(1)
        outlast()

    declare(handler, soft_timeout=True).enqueue()
    attempt = run_one()

    assert (attempt.outcome, attempt.error_class) == ("failed", "unknown")
    assert attempt.error_type == "django_jobs.exceptions.SoftTimeoutError"
    assert attempt.message.startswith("The handler was told that its budget of 0:01:00 was over, and let that pass.")
    assert "The attempt ran for 61." in attempt.message
    assert the_job().state in AGAIN
    assert (the_job().unknown_count, table()) == (1, [])


def test_handler_may_ask_to_be_run_again(declare: Declare) -> None:
    """A handler that answers the time-out with a wish gets the wish, and no budget is charged."""

    def handler() -> None:
        try:
            outlast()
        except SoftTimeoutError:
            raise Snooze(timedelta(hours=1)) from None

    declare(handler, soft_timeout=True).enqueue()

    assert run_one().outcome == "snoozed"
    assert the_job().unknown_count == 0


def test_nobody_is_told_who_did_not_ask_for_it(declare: Declare, told: list[Any]) -> None:
    """By default a handler goes on past its budget, statements included."""

    def handler() -> None:
        clock.skip(61)
        connection.ensure_connection()
        assert Job.objects.count() == 1

    declare(handler).enqueue()

    assert run_one().outcome == "succeeded"
    assert told == []


def test_progress_begins_a_new_budget(declare: Declare, looks: Looks, told: list[Any]) -> None:
    """After a renewal nothing comes until the new budget is over, and then it comes again."""

    def handler(context: JobContext) -> list[int]:
        caught = []
        for turn in range(2):
            clock.skip(40)
            context.progress(turn + 1)
            looks.wait()
            caught.append(len(told))
        for _ in range(2):
            try:
                outlast()
            except SoftTimeoutError:
                caught.append(len(told))
                context.progress(10 * len(caught))
        return caught

    declare(handler, takes_context=True, soft_timeout=True, max_runtime=timedelta(hours=1)).enqueue()

    assert run_one().outcome == "succeeded"
    assert the_job().payload.result == "[0,0,1,2]"


def test_it_comes_before_the_whole_run_time_is_over(declare: Declare, told: list[Any]) -> None:
    """The cleanup is left of ``max_runtime``, however often the handler told progress."""

    def handler(context: JobContext) -> None:
        clock.skip(55)
        context.progress(1)
        try:
            outlast(seconds=6)
        except SoftTimeoutError:
            return

    declare(handler, takes_context=True, soft_timeout=True, max_runtime=timedelta(seconds=71)).enqueue()

    assert run_one().outcome == "succeeded"
    assert len(told) == 1


@effect("tests.slow_provider", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def provider(call: Any) -> Confirmed:
    """Confirm after the budget of the job has passed, and after several looks."""
    clock.skip(61)
    WAITING[0].wait()
    return Confirmed("done")


WAITING: list[Looks] = []


def test_effect_is_whole(declare: Declare, looks: Looks, told: list[Any]) -> None:
    """Between the record before a request and the one after it nothing comes; afterwards it does."""
    WAITING[:] = [looks]

    def handler(context: JobContext) -> None:
        context.effect("pay", provider)
        outlast(seconds=0)

    declare(handler, takes_context=True, soft_timeout=True).enqueue()
    attempt = run_one()

    assert attempt.error_type.endswith("SoftTimeoutError")
    assert SideEffect.objects.get().state == "succeeded"
    assert len(told) == 1


@pytest.mark.parametrize("block", ["complete", "step", "atomic"])
def test_block_is_whole(declare: Declare, table: Table, looks: Looks, told: list[Any], block: str) -> None:
    """A completion, a step and a block of the handler's own end before anything comes."""

    inside: list[int] = []

    def late() -> None:
        clock.skip(61)
        looks.wait()
        inside.append(len(told))
        if block != "atomic":  # there a statement is refused, which rolls the block back
            write(1)

    def handler(context: JobContext) -> None:
        if block == "step":
            context.step("one", late)
        else:
            with context.complete() if block == "complete" else transaction.atomic():
                late()
        outlast(seconds=0) if block != "complete" else looks.wait()

    declare(handler, takes_context=True, soft_timeout=True).enqueue()
    outcome = run_one().outcome

    assert inside == [0]
    assert (outcome, len(told)) == (("succeeded", 0) if block == "complete" else ("failed", 1))
    assert table() == ([] if block == "atomic" else [1])


def test_statement_of_a_block_is_refused_and_the_block_rolled_back(declare: Declare, table: Table) -> None:
    """A handler at work in its own transaction gets it at the next statement, and Django rolls back."""

    def handler() -> None:
        try:
            with transaction.atomic():
                write(1)
                clock.skip(61)
                write(2)
        except SoftTimeoutError:
            write(3)

    declare(handler, atomic=False, soft_timeout=True).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [3]


def test_block_that_would_doom_the_whole_is_left_first(declare: Declare, table: Table, looks: Looks) -> None:
    """In an atomic handler a block without savepoint, as many of Django's are, ends before anything comes."""

    def handler() -> None:
        try:
            with transaction.atomic(savepoint=False):
                clock.skip(61)
                looks.wait()
                write(1)
            write(2)
        except SoftTimeoutError:
            write(3)

    declare(handler, soft_timeout=True).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [1, 3]


@pytest.mark.parametrize("method", ["effect", "step", "progress"])
def test_context_tells_what_could_not_be_told_before(
    declare: Declare, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Where the handler cannot be reached, its next act of the context is refused."""
    monkeypatch.setattr(soft_timeout, "can_strike", lambda: False)
    arguments = {"effect": ("pay", provider), "step": ("one", lambda: None), "progress": (1,)}

    def handler(context: JobContext) -> None:
        clock.skip(61)
        getattr(context, method)(*arguments[method])

    declare(handler, takes_context=True, soft_timeout=True).enqueue()

    assert run_one().error_type.endswith("SoftTimeoutError")
    assert not SideEffect.objects.exists()


def test_completion_after_the_budget_is_a_success(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """To complete is to end in good order."""
    monkeypatch.setattr(soft_timeout, "can_strike", lambda: False)

    def handler(context: JobContext) -> None:
        clock.skip(61)
        with context.complete():
            pass

    declare(handler, takes_context=True, soft_timeout=True).enqueue()

    assert run_one().outcome == "succeeded"


def test_attempt_that_was_taken_back_is_not_told(declare: Declare, looks: Looks, told: list[Any]) -> None:
    """Whoever took it back decides what becomes of it."""
    attempts = []

    def handler() -> None:
        attempts[0].revoke("its worker stops")
        clock.skip(61)
        looks.wait()

    declare(handler, soft_timeout=True).enqueue()
    attempts.append(take())
    run(*attempts)

    assert told == []


def test_error_of_the_handler_is_not_replaced(declare: Declare) -> None:
    """What the handler raises on its own counts, also when its time is up as it does."""

    def handler() -> None:
        clock.skip(61)
        raise EffectRejected("no")

    declare(handler, soft_timeout=True).enqueue()

    assert run_one().error_type.endswith("EffectRejected")


@pytest.mark.postgres
@pytest.mark.parametrize(("atomic", "guarded"), [(False, False), (True, True), (True, False)])
def test_long_statement_is_cancelled(declare: Declare, table: Table, atomic: bool, guarded: bool) -> None:
    """The server ends it, the connection goes on, and only a transaction without savepoint is lost with it."""
    sessions: list[int] = []

    def handler() -> None:
        try:
            with transaction.atomic() if guarded else connection.cursor(), connection.cursor() as cursor:
                sessions.append(connection.connection.info.backend_pid)
                cursor.execute("SELECT pg_sleep(60)")
        except SoftTimeoutError:
            if guarded or not atomic:
                write(1)
        sessions.append(connection.connection.info.backend_pid)

    declare(handler, atomic=atomic, soft_timeout=True, budget=timedelta(seconds=1)).enqueue()
    attempt = run_one()

    survives = guarded or not atomic
    assert attempt.outcome == ("succeeded" if survives else "failed")
    assert survives or "ended the transaction of the handler" in attempt.message
    assert table() == ([1] if survives else [])
    assert len(set(sessions)) == 1


def test_thread_goes_on_with_the_next_job(declare: Declare, table: Table) -> None:
    """After a handler that was told, the same thread and connection run another one to its end."""

    def handler(last: bool) -> None:
        if not last:
            outlast()
        write(1)

    declared = declare(handler, soft_timeout=True)
    first = declared.enqueue(last=False)
    attempts = [take()]
    declared.enqueue(last=True)
    attempts.append(take())

    def begin_the_other() -> None:
        attempts[1].asked_at = attempts[1].renewed_at = clock.boot_seconds()

    run(*attempts, after=begin_the_other)

    assert Attempt.objects.get(job_id=first.id).error_type.endswith("SoftTimeoutError")
    assert table() == [1]


def test_it_is_counted(declare: Declare, table: Table) -> None:
    """Per queue, job type and priority band."""
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    end = telemetry.subscribe(Metrics(registry))
    try:
        declare(outlast, soft_timeout=True).enqueue()
        run_one()
    finally:
        end()

    labels = {"queue": "default", "job_type": "tests.handler", "priority": "normal"}
    assert registry.get_sample_value("django_jobs_soft_timeouts_total", labels) == 1
