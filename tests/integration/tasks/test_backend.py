"""Stock tasks of Django on the package's backend: stored, run, read."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import transaction
from django.test import override_settings

from django_jobs import clock
from django_jobs.backends.task_names import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    signals,
    tasks,
)
from django_jobs.backends.tasks import DurableBackend
from django_jobs.define import registry
from django_jobs.exceptions import PayloadError
from django_jobs.models import Job, JobPayload
from django_jobs.testing import JobsKit
from tests.integration.tasks import declared
from tests.integration.tasks.declared import add, everything, fails, own, told
from tests.queries import asked

pytestmark = pytest.mark.django_db


def test_task_is_a_durable_job_that_returns_its_value(jobs: JobsKit) -> None:
    """Enqueueing stores a job under the task's path; a worker runs it; its value is read back."""
    result = add.enqueue(1, b=5)

    job = Job.objects.get(pk=result.id)
    assert (job.job_type, job.state, job.queue_name) == ("tests.integration.tasks.declared.add", "queued", "default")
    assert (result.status, result.outcome, result.args, result.kwargs) == (
        TaskResultStatus.READY,
        "created",
        [1],
        {"b": 5},
    )
    jobs.drain()
    result.refresh()
    assert (result.status, result.is_finished, result.return_value, result.attempts) == (
        TaskResultStatus.SUCCESSFUL,
        True,
        6,
        1,
    )
    assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at
    assert add.get_result(result.id).return_value == result.get(timeout=0) == 6


def test_context_priority_and_queue_arrive(jobs: JobsKit) -> None:
    """The context knows its attempt and its running result; the declared priority and queue are the job's."""
    result = told.using(priority=7).enqueue(3)

    assert list(Job.objects.values_list("priority", "queue_name")) == [(7, "quick")]
    jobs.drain()
    result.refresh()
    assert result.return_value == {"n": 3, "attempt": 1, "id": result.id, "status": "RUNNING"}


def test_coroutine_runs_and_asks_the_database_on_the_workers_connection(jobs: JobsKit) -> None:
    """An async task sees rows of the test's own connection, so its queries ran there."""
    User.objects.create_user("somebody")

    result = declared.count_users.enqueue(1)
    jobs.drain()
    result.refresh()

    assert result.return_value == 2


def test_attempts_that_failed_are_errors(jobs: JobsKit) -> None:
    """Each failed attempt is one error with its class and traceback; a dead letter has failed."""
    result = fails.enqueue()
    jobs.run_one()
    result.refresh()
    assert (result.status, len(result.errors)) == (TaskResultStatus.READY, 1)
    assert result.state in {"failed", "queued"}  # a pause of less than a second is none

    jobs.run_until_idle()
    result.refresh()

    assert (result.status, result.state, result.attempts) == (TaskResultStatus.FAILED, "dead_lettered", 3)
    assert [error.exception_class for error in result.errors] == [ValueError] * 3
    assert result.errors[0].traceback.endswith("ValueError: no\n")
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_arguments_that_do_not_fit_are_refused_before_they_are_stored() -> None:
    """A wrong call is a TypeError, what is no JSON too, and what no database stores a PayloadError."""
    with pytest.raises(TypeError, match="too many positional arguments"):
        add.enqueue(1, 2, 3)
    with pytest.raises(TypeError, match="Unsupported type"):
        everything.enqueue({1, 2})
    with pytest.raises(PayloadError):
        everything.enqueue("\x00")
    with pytest.raises(PayloadError):
        everything.enqueue(float("nan"))
    assert not Job.objects.exists()


def test_any_signature_is_called_as_it_was_enqueued(jobs: JobsKit) -> None:
    """Positional and named arguments arrive as they were given, also those named like the stored form."""
    result = everything.enqueue(1, "two", args=3, kwargs=4, context=5)
    jobs.drain()
    result.refresh()
    assert result.return_value == [[1, "two"], {"args": 3, "kwargs": 4, "context": 5}]


def test_value_that_is_no_json_ends_the_job(jobs: JobsKit) -> None:
    """A value that cannot be stored is an error of the task, told by its class."""
    result = declared.unstorable.enqueue()
    jobs.run_until_idle()
    result.refresh()
    assert (result.status, result.errors[-1].exception_class) == (TaskResultStatus.FAILED, TypeError)


def test_run_after_waits(jobs: JobsKit) -> None:
    """A task for later is scheduled, and runs when it is due."""
    result = add.using(run_after=clock.now() + timedelta(hours=1)).enqueue(1)

    assert result.state == "scheduled"
    assert not jobs.drain().attempts
    jobs.clock.tick(timedelta(hours=1, seconds=1))
    jobs.drain()
    result.refresh()
    assert result.return_value == 3


@override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin")
def test_project_without_time_zones_says_and_hears_local_times(jobs: JobsKit) -> None:
    """A naive run_after means the project's zone, and results have naive times of it."""
    result = add.using(run_after=datetime(2030, 7, 1, 12)).enqueue(1)  # noqa: DTZ001  what such a project has

    assert Job.objects.get().available_at == datetime(2030, 7, 1, 10, tzinfo=UTC)
    assert result.enqueued_at.tzinfo is None


def test_task_enqueued_inside_a_stock_task_commits_by_itself(jobs: JobsKit) -> None:
    """Its author knows nothing of complete(): enqueueing inside works, at least once."""
    result = declared.enqueues.enqueue(4)
    jobs.drain()
    result.refresh()
    assert add.get_result(result.return_value).return_value == 6


def test_stock_task_is_not_atomic_unless_the_options_say_so(jobs: JobsKit) -> None:
    """By default no transaction is open around a task; with ATOMIC its rows commit with its success."""
    declared.ran.clear()
    declared.writes.enqueue("one")
    jobs.drain()
    definition = registry.find("tests.integration.tasks.declared.writes")

    assert User.objects.filter(username="one").exists()
    assert definition is not None
    assert (definition.atomic, definition.is_stock_task) == (False, True)


def test_careless_annotation_of_a_stock_task_refuses_nothing(jobs: JobsKit) -> None:
    """Its author checked no types, and Django does not either: text given for a whole number runs as it is."""
    result = add.enqueue("a", b="b")
    jobs.drain()
    result.refresh()

    assert result.return_value == "ab"


def test_result_of_a_task_that_the_code_lost_can_be_read(jobs: JobsKit) -> None:
    """A renamed or removed task, and a damaged payload, never crash a reader."""
    result = add.enqueue(1)
    Job.objects.filter(pk=result.id).update(job_type="gone.tasks.add")
    JobPayload.objects.filter(pk=result.id).update(arguments="{")

    found = tasks.default_task_backend.get_result(result.id)

    assert (found.task.module_path, found.task.name, found.args, found.kwargs) == ("gone.tasks.add", "add", [], {})
    with pytest.raises(TaskResultMismatch):
        add.get_result(result.id)


def test_unknown_results_are_not_found() -> None:
    """An id that is none, and one of no job, have no result; another task's is a mismatch."""
    for wrong in ("123", "00000000-0000-7000-8000-000000000000"):
        with pytest.raises(TaskResultDoesNotExist):
            add.get_result(wrong)


def test_rollback_takes_the_task_back_and_sends_no_signal(transactional_db: None) -> None:
    """The job is part of the caller's transaction, and the signal waits for its commit."""
    heard: list[str] = []

    def hear(task_result: Any, **_: object) -> None:
        heard.append(task_result.id)

    signals().task_enqueued.connect(hear)
    try:
        with transaction.atomic():
            add.enqueue(1)
            transaction.set_rollback(True)
        assert (Job.objects.count(), heard) == (0, [])
        with transaction.atomic():
            result = add.enqueue(1)
            assert heard == []
    finally:
        signals().task_enqueued.disconnect(hear)
    assert heard == [result.id]


def test_signals_of_a_run_are_sent_with_what_is_stored(jobs: JobsKit) -> None:
    """A start and, at the end of the job, its outcome; a retry in between is no end."""
    heard: list[Any] = []

    def hear(task_result: Any, **_: object) -> None:
        heard.append(task_result.status)

    both = (signals().task_started, signals().task_finished)
    for signal in both:
        signal.connect(hear)
    try:
        add.enqueue(1)
        fails.enqueue()
        jobs.run_until_idle()
    finally:
        for signal in both:
            signal.disconnect(hear)

    running = TaskResultStatus.RUNNING
    assert heard == [running, TaskResultStatus.SUCCESSFUL, *[running] * 3, TaskResultStatus.FAILED]


def test_async_twins_store_and_read(jobs: JobsKit) -> None:
    """aenqueue, aget_result, arefresh and the async wait do what their twins do."""

    async def use() -> Any:
        result = await add.aenqueue(1)
        return result, await add.aget_result(result.id)

    result, read = async_to_sync(use)()
    jobs.drain()
    async_to_sync(result.arefresh)()
    assert (read.id, result.return_value) == (result.id, 3)


def test_job_type_is_a_task_of_django_too(jobs: JobsKit) -> None:
    """The backend takes what @job returns, with its key; a duplicate is answered with the same result."""
    backend = tasks.default_task_backend
    first, second = (backend.enqueue(own, [], {"n": 3}) for _ in range(2))

    assert (first.outcome, second.outcome, second.id) == ("created", "duplicate", first.id)
    jobs.drain()
    first.refresh()
    assert (first.status, first.kwargs, first.task) == (TaskResultStatus.SUCCESSFUL, {"n": 3}, own)
    assert copy.deepcopy(own) is own
    assert pickle.loads(pickle.dumps(own)) is own


def test_job_type_has_the_fields_of_a_task() -> None:
    """Django's code reads a task's fields; on Django 6 a job type passes for one."""
    import django

    if django.VERSION >= (6, 0):
        from django.tasks import Task

        assert isinstance(own, Task)
        assert own.module_path == "tests.integration.tasks.declared.own"
    assert (own.priority, own.queue_name, own.backend, own.takes_context) == (0, "default", "default", False)
    assert own.using(key="other") != own


def test_queue_that_the_backend_does_not_have_is_refused() -> None:
    """QUEUES names the queues; an empty list means any."""
    one = DurableBackend("default", {"QUEUES": ["only"]})

    for task in (add, own):
        with pytest.raises(InvalidTask, match="Queue 'default' is not valid for backend"):
            one.validate_task(task)
    DurableBackend("default", {"QUEUES": []}).validate_task(add)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"ATOMICC": True}, "no option 'ATOMICC'"), ({"DEFAULTS": {"retries": 3}}, "has no 'retries'")],
)
def test_option_that_does_not_exist_is_refused(options: dict[str, Any], match: str) -> None:
    """A misspelled option is told with what there is."""
    with pytest.raises(InvalidTaskBackend, match=match):
        DurableBackend("default", {"OPTIONS": options})


def test_flags_tell_what_it_can() -> None:
    """Everything that Django has a flag for is supported."""
    backend = DurableBackend("default", {})
    assert all(getattr(backend, f"supports_{what}") for what in ("defer", "async_task", "get_result", "priority"))


def test_check_names_a_database_that_is_missing() -> None:
    """A backend that could not store anything is an error of the checks."""
    backend = DurableBackend("default", {"OPTIONS": {"DATABASE": "nowhere"}})
    assert [(message.id, "'nowhere'" in message.msg) for message in backend.check()] == [("django_jobs.E031", True)]
    assert list(DurableBackend("default", {}).check()) == []


def test_enqueue_reads_back_what_it_stored_in_one_query() -> None:
    """Beside what storing a job costs, Django's result costs one query."""
    with asked() as bare:
        own.using(key="bare").enqueue(n=1)
    with asked() as wrapped:
        tasks.default_task_backend.enqueue(own.using(key="wrapped"), [], {"n": 1})
    assert len(wrapped) == len(bare) + 1


def test_tasks_of_one_serial_key_run_one_after_the_other(jobs: JobsKit) -> None:
    """What a job type can say, a task can say for one enqueue: the second one waits for its turn."""
    first, second = (add.using(serial_key="account:1").enqueue(1) for _ in range(2))
    assert set(Job.objects.values_list("serial_key", flat=True)) == {"account:1"}
    jobs.run_one()
    assert [Job.objects.get(pk=result.id).state for result in (first, second)] == ["succeeded", "queued"]
    jobs.drain()
    second.refresh()
    assert second.status == TaskResultStatus.SUCCESSFUL
