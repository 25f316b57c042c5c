"""What a handler does through its context: completion, steps, progress, and their limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import OperationalError

from django_jobs import Confirmed, JobContext, RetryPolicy, clock, effect
from django_jobs.exceptions import (
    ContextClosedError,
    DefinitionError,
    EffectError,
    LeaseLostError,
    OutsideCompletionError,
)
from django_jobs.models import Attempt, Job, JobStep, Send
from tests.integration.worker.conftest import Declare, run, run_one, take, the_job, write
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
Work = Callable[[JobContext], Any]
AT_ONCE = RetryPolicy(base=timedelta(microseconds=1), cap=timedelta(microseconds=1))


@effect("tests.provider", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def provider(call: Any) -> Confirmed:
    """Confirm everything."""
    return Confirmed("ref")


def run_with(declare: Declare, work: Work, **options: Any) -> Attempt:
    """Run a handler with a context once."""
    declare(lambda context: work(context), takes_context=True, **options).enqueue()
    return run_one()


def test_completion_commits_rows_result_and_success_together(declare: Declare, table: Table) -> None:
    """What the block wrote and its result are there if and only if the job succeeded."""

    def work(context: JobContext) -> None:
        with context.complete() as done:
            write(1)
            done.result = {"ref": "x"}

    attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert table() == [1]
    assert json.loads(the_job().payload.result) == {"ref": "x"}


def test_code_after_the_completion_cannot_fail_the_job(
    declare: Declare, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception after complete() is logged and told; the job stays succeeded with one attempt."""

    def work(context: JobContext) -> None:
        with context.complete():
            write(1)
        raise ValueError("too late to matter")

    with Told() as told, caplog.at_level(logging.ERROR):
        attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert the_job().unknown_count == 0
    assert told.named("job.after_completion_error")
    assert "too late to matter" in caplog.text


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "completion"])
def test_failing_hook_after_the_commit_cannot_fail_the_job(declare: Declare, table: Table, atomic: bool) -> None:
    """A function on_commit that raises comes after the success: logged, not charged, nothing counted as refused."""

    def hook() -> None:
        raise ValueError("in a hook")

    def plain() -> None:
        write(1)
        transaction.on_commit(hook)

    def with_context(context: JobContext) -> None:
        with context.complete():
            plain()

    declare(plain if atomic else with_context, takes_context=not atomic).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.refused_count) == ("succeeded", 0)
    assert table() == [1]


def test_context_is_closed_after_the_success(declare: Declare) -> None:
    """Completing twice, or asking for an effect after it, is refused inside the handler and by a kept context."""
    kept: list[JobContext] = []
    refused: list[str] = []

    def work(context: JobContext) -> None:
        kept.append(context)
        with context.complete():
            pass
        acts: list[Callable[[], object]] = [
            lambda: context.complete().__enter__(),
            lambda: context.effect("late", provider),
            lambda: context.progress(1),
            lambda: context.step("late", lambda: 1),
        ]
        for act in acts:
            try:
                act()
            except ContextClosedError as error:
                refused.append(type(error).__name__)

    attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert refused == ["ContextClosedError"] * 4
    with pytest.raises(ContextClosedError):
        kept[0].progress(1)


def test_step_runs_once_and_its_result_is_reused(declare: Declare, table: Table) -> None:
    """The next attempt gets the stored result; the row of the step exists once."""
    results: list[Any] = []

    def once() -> dict[str, int]:
        write(1)
        return {"n": 7}

    def work(context: JobContext) -> None:
        results.append(context.step("one", once))
        if context.attempt == 1:
            raise ValueError("after the step")

    first = run_with(declare, work, retry=AT_ONCE)
    second = run_one()

    assert (first.outcome, second.outcome) == ("failed", "succeeded")
    assert results == [{"n": 7}, {"n": 7}]
    assert table() == [1]
    assert JobStep.objects.count() == 1


@pytest.mark.parametrize("found", [False, True], ids=["run before", "found before"])
def test_second_step_of_one_name_is_refused_in_an_attempt(declare: Declare, table: Table, found: bool) -> None:
    """A loop that forgets to name its lines fails at the second one instead of leaving it out in silence."""

    def work(context: JobContext) -> None:
        for line in (1, 2):
            context.step("line", lambda line=line: write(line))
            if found and context.attempt == 1:
                raise ValueError("after the first")

    attempt = run_with(declare, work, retry=AT_ONCE)
    if found:
        attempt = run_one()

    assert (attempt.outcome, attempt.error_type) == ("failed", "django_jobs.exceptions.DefinitionError")
    assert "put the id" in attempt.message
    assert (the_job().state, table()) == ("dead_lettered", [1])


def test_step_that_failed_may_be_tried_again_in_the_same_attempt(declare: Declare, table: Table) -> None:
    """Nothing of it is left, so nothing is left out."""

    def work(context: JobContext) -> None:
        with pytest.raises(ValueError, match="not yet"):
            context.step("line", lambda: (write(1), fail()))
        context.step("line", lambda: write(2))

    def fail() -> None:
        raise ValueError("not yet")

    assert run_with(declare, work).outcome == "succeeded"
    assert table() == [2]


def test_second_effect_of_one_name_without_a_key_is_refused_in_an_attempt(declare: Declare) -> None:
    """A loop over equal requests fails at the second one instead of taking the receipt of the first; keys tell apart."""

    def work(context: JobContext, is_named: bool) -> None:
        for line in (1, 2):
            context.effect("print", provider, key=f"line:{line}" if is_named else None)

    job = declare(work, takes_context=True)
    job.enqueue(is_named=False)
    refused = run_one()
    job.enqueue(is_named=True)
    sent = run_one()

    assert (refused.outcome, refused.error_type) == ("failed", "django_jobs.exceptions.EffectError")
    assert "pass key=" in refused.message
    assert sent.outcome == "succeeded"
    assert Send.objects.count() == 3


@pytest.mark.parametrize("takes_context", [True, False])
@pytest.mark.parametrize("atomic", [True, False])
def test_parameters_may_have_any_name(declare: Declare, takes_context: bool, atomic: bool) -> None:
    """What the worker calls its own things takes no name from a handler."""
    names = "attempt, arguments, definition, encoded, function, inside, job, run, self, using"
    first = "context, " if takes_context else ""
    scope: dict[str, Any] = {}
    exec(f"def handler({first}{names}):\n    return [{names}]", scope)
    values = {name: place for place, name in enumerate(names.split(", "))}
    options = {"takes_context": True} if takes_context else {"atomic": atomic}
    declare(scope["handler"], **options).enqueue(**values)

    attempt = run_one()

    assert attempt.outcome == "succeeded", attempt.message
    assert json.loads(the_job().payload.result) == list(values.values())


def test_step_that_fails_leaves_nothing(declare: Declare, table: Table) -> None:
    """Rows and record of a failing step are rolled back together."""

    def failing() -> None:
        write(1)
        raise ValueError("in the step")

    attempt = run_with(declare, lambda context: context.step("one", failing))

    assert attempt.outcome == "failed"
    assert table() == []
    assert not JobStep.objects.exists()


@pytest.mark.parametrize("place", ["complete", "step", "atomic"])
def test_effect_inside_a_transaction_is_refused_before_anything_is_sent(declare: Declare, place: str) -> None:
    """A rollback would forget what was sent, so no effect is asked for in a transaction."""
    refused: list[str] = []

    def ask(context: JobContext) -> None:
        with pytest.raises(EffectError) as caught:
            context.effect("charge", provider)
        refused.append(str(caught.value))

    def work(context: JobContext) -> None:
        if place == "complete":
            with context.complete():
                ask(context)
        elif place == "step":
            context.step("one", lambda: ask(context))
        else:
            with transaction.atomic():
                ask(context)

    attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert "inside a transaction" in refused[0]


def test_enqueue_belongs_into_what_commits_with_the_success(declare: Declare) -> None:
    """Outside of completion and step it is refused, detached it is allowed, inside it commits or vanishes with it."""
    refused: list[str] = []

    def work(context: JobContext, depth: int) -> None:
        if depth:
            return
        try:
            handler.enqueue(depth=1)
        except OutsideCompletionError as error:
            refused.append(str(error))
        handler.using(detached=True).enqueue(depth=2)
        context.step("in a step", lambda: handler.enqueue(depth=3).state)
        with context.complete():
            handler.enqueue(depth=4)

    handler = declare(work, takes_context=True)
    handler.enqueue(depth=0)

    run_one()

    assert "detached=True" in refused[0]
    kept = Job.objects.filter(state="queued").select_related("payload")
    assert sorted(json.loads(job.payload.arguments)["depth"] for job in kept) == [2, 3, 4]


def test_atomic_handler_may_enqueue_and_it_goes_with_the_rollback(declare: Declare) -> None:
    """A follow-up job of an atomic handler that fails was never there."""

    def work(depth: int) -> None:
        handler.enqueue(depth=depth + 1)
        raise ValueError("no")

    handler = declare(work)
    handler.enqueue(depth=0)

    run_one()

    assert Job.objects.count() == 1


def test_completion_inside_a_transaction_is_refused(declare: Declare) -> None:
    """complete() opens the outermost transaction itself."""

    def work(context: JobContext) -> None:
        with transaction.atomic(), context.complete():
            pass

    attempt = run_with(declare, work)

    assert attempt.error_type.endswith("DefinitionError")


def test_completion_of_a_lost_job_writes_nothing(declare: Declare, table: Table) -> None:
    """The job row is locked and checked first, so that the block of a worker that lost the job does not even run."""

    def work(context: JobContext) -> None:
        with context.complete():
            write(1)

    declare(work, takes_context=True).enqueue()
    attempt = take()
    Job.objects.update(attempt_id=attempt.job_id)

    run(attempt)

    row = Attempt.objects.get()
    assert (row.refused_count, row.refused_operation) == (1, "complete")
    assert table() == []


@pytest.mark.postgres
def test_completion_locks_first_and_limits_idling(declare: Declare) -> None:
    """The first statement holds the job row and sets the idle limit: at most 15 s, and less near the lease's end."""
    seen: list[Any] = []

    def work(context: JobContext) -> None:
        with context.complete():
            with connection.cursor() as cursor:
                cursor.execute("SHOW idle_in_transaction_session_timeout")
                seen.extend(cursor.fetchone())
            seen.append(Job.objects.select_for_update(skip_locked=True).count())

    attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert seen[0] == "15s"
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("0",), "the limit ends with its transaction"


@pytest.mark.postgres
def test_atomic_handler_opens_no_transaction_before_its_first_query(declare: Declare) -> None:
    """A handler that computes or calls first holds nothing; from its first query on its idling is limited."""
    seen: list[Any] = []

    def work() -> None:
        raw = connection.connection
        seen.append(raw.info.transaction_status.name if raw is not None else "NONE")
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            seen.extend(cursor.fetchone())
        seen.append(connection.connection.info.transaction_status.name)

    declare(work).enqueue()

    assert run_one().outcome == "succeeded"
    assert seen[0] in {"IDLE", "NONE"}
    assert seen[1] not in {"0", "15s"}
    assert seen[2] == "INTRANS"


def test_busy_database_inside_a_handler_is_transient(declare: Declare) -> None:
    """'database is locked' and the like, raised by a handler, say: later."""

    def work() -> None:
        raise OperationalError("database is locked")

    declare(work).enqueue()

    assert run_one().error_class == "transient"


def test_progress_renews_at_most_four_times_per_lease(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand reports within a lease cost four writes; each extends the lease from the present."""
    now = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: now[0])

    def work(context: JobContext) -> None:
        for value in range(10_000):
            now[0] += 70 / 10_001
            context.progress(value, total=10_000)

    with Told() as told:
        attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert 1 <= len(told.named("job.renew")) <= 4


def test_same_progress_renews_nothing(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a number that grows is progress; smaller and equal ones change nothing and raise nothing."""
    now = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: now[0])

    def work(context: JobContext) -> None:
        for value in (5, 5, 4, 5):
            now[0] += 15
            context.progress(value)

    with Told() as told:
        attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert [fields["progress"] for fields in told.named("job.renew")] == [5]


def test_progress_inside_a_transaction_writes_nothing(declare: Declare) -> None:
    """A renewal that a rollback could take back, or that waits for a commit, is none."""

    def work(context: JobContext) -> None:
        with transaction.atomic():
            context.progress(1)
        with context.complete():
            context.progress(2)

    with Told() as told:
        attempt = run_with(declare, work)

    assert attempt.outcome == "succeeded"
    assert told.named("job.renew") == []


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", 2**63])
def test_progress_takes_whole_numbers_only(declare: Declare, value: Any) -> None:
    """Anything else is a defect of the handler and says so."""
    attempt = run_with(declare, lambda context: context.progress(value))

    assert attempt.error_type.endswith("DefinitionError")
    assert "whole number" in attempt.message


def test_progress_of_a_lost_job_raises(declare: Declare) -> None:
    """The handler learns at its next report that somebody else owns the job."""
    raised: list[type[BaseException]] = []

    def work(context: JobContext) -> None:
        try:
            context.progress(1)
        except LeaseLostError as error:
            raised.append(type(error))
            raise

    declare(work, takes_context=True).enqueue()
    attempt = take()
    Job.objects.update(attempt_id=attempt.job_id)

    run(attempt)

    assert raised == [LeaseLostError]
    assert Attempt.objects.get().refused_operation == "renew"


@pytest.mark.sqlite
def test_long_transaction_on_sqlite_is_told(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that holds the only write lock longer than others wait is counted and named."""
    now = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: now[0])

    def work() -> None:
        now[0] += 6

    declare(work).enqueue()

    with Told() as told:
        run_one()

    assert [fields["operation"] for fields in told.named("transaction.long")] == ["an atomic handler"]


def test_names_of_definition_errors_reach_the_attempt(declare: Declare) -> None:
    """A step needs a name that can be stored."""
    attempt = run_with(declare, lambda context: context.step("", lambda: 1))

    assert attempt.outcome == "failed"
    assert DefinitionError.__name__ in attempt.error_type or "KeyFormatError" in attempt.error_type
