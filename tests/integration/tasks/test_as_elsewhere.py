"""What users of other database backends of Django's tasks rely on: here too, each told by what is seen from outside."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core import checks
from django.db import connection, connections, transaction
from django.test import override_settings

from django_jobs import clock
from django_jobs.backends import task_signals
from django_jobs.backends.task_names import InvalidTask, TaskResultStatus, tasks
from django_jobs.backends.tasks import DurableBackend
from django_jobs.models import Job
from django_jobs.testing import JobsKit
from tests.integration.tasks import declared
from tests.integration.tasks.declared import add, everything
from tests.integration.tasks.modules import DURABLE, written

pytestmark = pytest.mark.django_db


def test_higher_priority_runs_first_and_older_before_younger(jobs: JobsKit) -> None:
    """The order is by priority, then by age."""
    declared.ran.clear()
    for n, priority in enumerate([0, -100, 100, 0]):
        declared.notes.using(priority=priority).enqueue(n)
    jobs.drain()
    assert declared.ran == [2, 0, 3, 1]


def test_task_for_later_does_not_keep_others_waiting(jobs: JobsKit) -> None:
    """What is not due is passed over, whatever its priority, and runs when its time has come."""
    declared.ran.clear()
    declared.notes.using(priority=100, run_after=clock.now() + timedelta(hours=1)).enqueue(1)
    declared.notes.enqueue(2)
    jobs.drain()
    assert declared.ran == [2]
    jobs.run_until_idle()
    assert declared.ran == [2, 1]


@pytest.mark.parametrize("priority", [-101, 101, 0.5])
def test_priority_out_of_range_is_refused(priority: float) -> None:
    """The range is Django's, whole numbers from -100 to 100."""
    with pytest.raises(InvalidTask, match="whole number between -100 and 100"):
        add.using(priority=priority)


def test_exceptions_are_told_with_their_causes(jobs: JobsKit) -> None:
    """Class and traceback of what failed are kept, of the cause too, and SystemExit is an error like others."""
    source = (
        "@task\ndef nested():\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n"
        "        raise ValueError(ValueError('inside')) from error\n"
        "@task\ndef leaves():\n    raise SystemExit(2)\n"
    )
    with written(source) as made:
        nested, leaves = made.nested.enqueue(), made.leaves.enqueue()
        jobs.run_until_idle()
        for result in (nested, leaves):
            result.refresh()
    assert {one.exception_class for one in nested.errors} == {ValueError}
    assert "ZeroDivisionError" in nested.errors[0].traceback
    assert "inside" in nested.errors[0].traceback
    assert ({one.exception_class for one in leaves.errors}, leaves.status) == ({SystemExit}, TaskResultStatus.FAILED)


def test_every_attempt_names_its_worker(jobs: JobsKit) -> None:
    """A task that succeeded at once has one worker id; its number of attempts follows."""
    result = add.enqueue(1)
    jobs.drain()
    result.refresh()
    assert (len(result.worker_ids), result.attempts, result.errors) == (1, 1, [])


def test_task_that_the_code_lost_waits(jobs: JobsKit) -> None:
    """A worker without the task leaves it for one that has it: it is neither run nor failed."""
    result = add.enqueue(1)
    Job.objects.filter(pk=result.id).update(job_type="gone.tasks.add")
    assert not jobs.drain().attempts
    assert tasks.default_task_backend.get_result(result.id).status == TaskResultStatus.READY


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres
def test_others_see_the_task_when_its_transaction_has_committed() -> None:
    """Until then it belongs to the caller alone."""

    def seen() -> int:
        other = connections.create_connection("default")
        try:
            with other.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM {Job._meta.db_table}")
                return int(cursor.fetchone()[0])
        finally:
            other.close()

    with transaction.atomic():
        result = add.enqueue(1)
        assert (Job.objects.count(), seen(), result.enqueued_at is not None) == (1, 0, True)
    assert (seen(), connection.in_atomic_block) == (1, False)


@pytest.mark.django_db(transaction=True)
def test_enqueue_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Django's receiver tells of each task that was enqueued, with its id."""
    name = task_signals._LOGGER.name
    with caplog.at_level(logging.DEBUG, name):
        result = add.enqueue(1)
    lines = [record.getMessage() for record in caplog.records if record.name == name]
    assert len(lines) == 1
    assert "enqueued" in lines[0]
    assert result.id in lines[0]


def test_queue_is_checked_again_at_the_enqueue() -> None:
    """A task that was fine when it was made is refused by a backend that does not have its queue."""
    task = add.using(queue_name="elsewhere")
    with (
        override_settings(TASKS={"default": {"BACKEND": DURABLE, "QUEUES": ["default"]}}),
        pytest.raises(InvalidTask, match="Queue 'elsewhere' is not valid for backend"),
    ):
        task.enqueue()
    assert not Job.objects.exists()


def test_app_that_is_missing_is_an_error_with_a_hint() -> None:
    """The checks say what to add to INSTALLED_APPS."""
    with override_settings(INSTALLED_APPS=[]):
        found = [one for one in DurableBackend("default", {}).check() if isinstance(one, checks.Error)]
    assert [one.id for one in found] == ["django_jobs.E030"]
    assert "'django_jobs'" in str(found[0].hint)


@pytest.mark.parametrize("argument", [{"deep": [1, {"a": None}]}, [[]], "ünï", True, None, -5])
def test_arguments_come_back_as_they_were(jobs: JobsKit, argument: Any) -> None:
    """JSON goes in and comes out."""
    result = everything.enqueue(argument, named=argument)
    jobs.drain()
    result.refresh()
    assert (result.args, result.kwargs) == ([argument], {"named": argument})
    assert result.return_value == [[argument], {"named": argument}]
