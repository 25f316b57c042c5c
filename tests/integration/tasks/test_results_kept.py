"""What is told of a task whose job, or whose content, is not kept any more."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from django_jobs import clock
from django_jobs.backends.task_names import TaskResultDoesNotExist, TaskResultStatus, tasks
from django_jobs.exceptions import ResultGoneError
from django_jobs.models import Job
from django_jobs.operate.prune import prune
from django_jobs.testing import JobsKit
from tests.integration.tasks.declared import add, own_remembered, told
from tests.integration.tasks.modules import DURABLE

pytestmark = pytest.mark.django_db


def test_duplicate_of_a_pruned_job_is_answered(jobs: JobsKit) -> None:
    """Its key goes on answering: the enqueue says that it is a duplicate, and what the job came to."""
    backend = tasks.default_task_backend
    first = backend.enqueue(own_remembered, [], {"n": 5})
    jobs.drain()
    jobs.clock.tick(timedelta(days=401))
    prune(using="default")
    assert not Job.objects.exists()

    second = backend.enqueue(own_remembered, [], {"n": 5})

    assert (second.id, second.outcome, second.status) == (first.id, "duplicate", TaskResultStatus.SUCCESSFUL)
    assert (second.task, second.kwargs, second.enqueued_at, second.attempts) == (own_remembered, {"n": 5}, None, 0)
    with pytest.raises(ResultGoneError):
        _ = second.return_value
    with pytest.raises(TaskResultDoesNotExist):
        second.refresh()


def test_value_that_was_removed_is_an_error(jobs: JobsKit) -> None:
    """A value that is not kept any more is not None: reading it says what happened, as get() does."""
    result = add.enqueue(1)
    jobs.drain()
    Job.objects.filter(pk=result.id).update(content_removed_at=clock.now())

    result.refresh()

    assert (result.status, result.content_removed) == (TaskResultStatus.SUCCESSFUL, True)
    for read in (lambda: result.return_value, lambda: result.get(timeout=0)):
        with pytest.raises(ResultGoneError, match="removed with its content"):
            read()


def test_awaited_value(jobs: JobsKit) -> None:
    """aget() waits as get() does, from async code."""
    result = add.enqueue(1)
    jobs.drain()
    assert async_to_sync(result.aget)(timeout=0) == 3


def test_result_is_of_the_task_as_it_was_enqueued() -> None:
    """Priority and queue of ``using()`` are told, also when the queue is none of the backend's any more."""
    result = told.using(priority=7, queue_name="gone").enqueue(1)
    with override_settings(TASKS={"default": {"BACKEND": DURABLE, "QUEUES": ["quick"]}}):
        read = told.get_result(result.id)
    for one in (result, read):
        assert (one.task.priority, one.task.queue_name, one.task.func) == (7, "gone", told.func)
