"""More of what users of django-tasks-db rely on: results before and after a run, order, and what is never imported."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_jobs import clock
from django_jobs.backends import task_signals
from django_jobs.backends.task_names import InvalidTask, TaskContext, TaskResultDoesNotExist, TaskResultStatus, tasks
from django_jobs.backends.tasks import DurableBackend
from django_jobs.models import Job
from django_jobs.testing import JobsKit
from tests.integration.tasks import declared
from tests.integration.tasks.declared import add, fails, told, told_async
from tests.integration.tasks.modules import DURABLE, written
from tests.integration.tasks.test_two_aliases import heard  # noqa: F401  a fixture

pytestmark = pytest.mark.django_db(transaction=True)


def test_backend_of_the_settings_is_the_default_one_and_complains_of_nothing() -> None:
    """It is there under its alias, and its checks find nothing."""
    backend = tasks.task_backends["default"]
    assert tasks.default_task_backend == backend
    assert (type(backend), backend.alias, list(backend.check())) == (DurableBackend, "default", [])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("task", [add, told_async])
def test_result_of_a_task_that_waits(heard: list[Any], task: Any, is_async: bool) -> None:  # noqa: F811
    """It knows what was asked for, has no times, attempts or value yet, and one signal told of it."""
    result = async_to_sync(task.aenqueue)("1") if is_async else task.enqueue("1")
    assert (result.status, result.is_finished, result.attempts) == (TaskResultStatus.READY, False, 0)
    assert (result.task, result.args, result.kwargs) == (task, ["1"], {})
    assert [result.started_at, result.last_attempted_at, result.finished_at] == [None] * 3
    assert heard == [("DurableBackend", "default", "default")]
    with pytest.raises(ValueError, match="Task has not finished yet"):
        result.return_value  # noqa: B018  a property


def test_value_of_a_task_that_failed_is_an_error(jobs: JobsKit) -> None:
    """Its last error ends with the exception as Python prints it, and it has its times."""
    result = fails.enqueue()
    jobs.run_until_idle()
    result.refresh()
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018  a property
    assert result.errors[-1].traceback.endswith("ValueError: no\n")
    assert result.enqueued_at <= result.started_at <= result.last_attempted_at <= result.finished_at


@pytest.mark.parametrize("result_id", ["123", "00000000-0000-7000-8000-000000000000"])
def test_unknown_results_are_not_found_from_async_code(result_id: str) -> None:
    """The asynchronous twin says the same as the other."""
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(tasks.default_task_backend.aget_result)(result_id)


def test_queue_is_checked_at_the_asynchronous_enqueue_too() -> None:
    """A queue that the backend does not have is refused before anything is stored."""
    task = add.using(queue_name="elsewhere")
    with (
        override_settings(TASKS={"default": {"BACKEND": DURABLE, "QUEUES": ["default"]}}),
        pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"),
    ):
        async_to_sync(task.aenqueue)()
    assert not Job.objects.exists()


def test_start_that_was_asked_for_is_the_tasks_own(jobs: JobsKit) -> None:
    """A result that is read has it as the one of the enqueue, also when the task has run; at once is none."""
    due = clock.now() + timedelta(hours=1)
    later, at_once = add.using(run_after=due).enqueue(1), add.enqueue(1)
    assert add.get_result(later.id) == later
    jobs.run_until_idle()
    assert [add.get_result(one.id).task.run_after for one in (later, at_once)] == [due, None]


@override_settings(USE_TZ=False, TIME_ZONE="Europe/Berlin")
def test_start_is_told_in_local_time_where_the_project_has_no_zones() -> None:
    """As it was given, and none where none was given."""
    noon = datetime(2030, 7, 1, 12)  # noqa: DTZ001  what such a project has
    for given in (noon, None):
        result = add.using(run_after=given).enqueue(1)
        assert add.get_result(result.id).task.run_after == given
    assert Job.objects.filter(available_at=datetime(2030, 7, 1, 10, tzinfo=UTC)).count() == 1


def test_replay_has_no_start_that_was_asked_for() -> None:
    """The count of its time has begun anew, so that what was said once is not known any more."""
    result = add.using(run_after=clock.now() + timedelta(hours=1)).enqueue(1)
    Job.objects.filter(pk=result.id).update(generation=2)
    assert add.get_result(result.id).task.run_after is None


def test_earlier_start_runs_first_among_equal_priorities(jobs: JobsKit) -> None:
    """Of what is due, priority comes first, then the earlier start, then the earlier enqueue."""
    declared.ran.clear()
    now = clock.now()
    for n, (priority, hours) in enumerate([(0, 3), (0, 1), (5, 2), (0, 1)]):
        declared.notes.using(priority=priority, run_after=now + timedelta(hours=hours)).enqueue(n)
    jobs.clock.tick(timedelta(hours=4))
    jobs.drain()
    assert declared.ran == [2, 1, 3, 0]


@pytest.mark.parametrize("path", ["tests.tasks.gone", "subprocess.check_output", "no_such_module.task", "bare"])
def test_stored_path_is_never_imported(jobs: JobsKit, path: str) -> None:
    """A path in a row is a name to look up: what is no known task is shown by its last part, and not run."""
    result = add.enqueue(["exit", "1"])
    Job.objects.filter(pk=result.id).update(job_type=path)
    assert not jobs.drain().attempts
    found = tasks.default_task_backend.get_result(result.id)
    assert (found.task.name, found.status) == (path.rpartition(".")[2], TaskResultStatus.READY)
    assert "no_such_module" not in sys.modules


def test_run_is_two_lines_of_the_log(jobs: JobsKit, caplog: pytest.LogCaptureFixture) -> None:
    """Django's receivers tell the start and the success, with id and path."""
    name = task_signals._LOGGER.name
    result = add.enqueue(1)
    with caplog.at_level(logging.INFO, name):
        jobs.drain()
    lines = [record.getMessage() for record in caplog.records if record.name == name]
    head = f"Task id={result.id} path={add.module_path} state="
    assert lines == [f"{head}RUNNING", f"{head}SUCCESSFUL"]


def test_context_is_djangos_own(jobs: JobsKit) -> None:
    """A task that takes a context gets one of Django's class, with the first attempt and its own id."""
    with written(
        "@task(takes_context=True)\ndef kind(context):\n    return [str(type(context).__mro__), context.attempt]\n"
    ) as made:
        result = made.kind.enqueue()
        jobs.drain()
        result.refresh()
    kinds, attempt = result.return_value
    assert (str(TaskContext) in kinds, attempt) == (True, 1)
    seen = told.enqueue(1)
    jobs.drain()
    seen.refresh()
    assert seen.return_value["id"] == seen.id
