"""Two backends of the package on one database: who is told as the one that enqueued a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_jobs.backends.task_alias import alias_of
from django_jobs.backends.task_names import signals, tasks
from django_jobs.models import Job
from django_jobs.testing import JobsKit
from tests.integration.tasks.declared import add, own
from tests.integration.tasks.modules import DURABLE, backends, written
from tests.integration.tasks.own_backend import OwnBackend

pytestmark = pytest.mark.django_db(transaction=True)

OWN = f"{OwnBackend.__module__}.{OwnBackend.__qualname__}"
REPORTS = {"BACKEND": OWN, "QUEUES": ["reports"]}
ALL = ("task_enqueued", "task_started", "task_finished")


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str, str]]]:
    """Give what signals said: the sender's name, and the alias of the result and of its task."""
    found: list[tuple[str, str, str]] = []

    def hear(sender: type, task_result: Any, **_: object) -> None:
        found.append((sender.__name__, task_result.backend, task_result.task.backend))

    for name in ALL:
        getattr(signals(), name).connect(hear)
    yield found
    for name in ALL:
        getattr(signals(), name).disconnect(hear)


def test_signals_of_a_worker_name_the_backend_of_the_queue(jobs: JobsKit, heard: list[Any]) -> None:
    """Each job is told by the alias that enqueued it, in all three signals, with that backend's class as sender."""
    with backends(reports=REPORTS):
        add.using(backend="reports", queue_name="reports").enqueue(1)
        jobs.drain()
        add.enqueue(2)
        jobs.drain()
    assert heard == [("OwnBackend", "reports", "reports")] * 3 + [("DurableBackend", "default", "default")] * 3


def test_queue_that_both_may_have_is_told_by_the_declaration(jobs: JobsKit, heard: list[Any]) -> None:
    """Where queues tell nothing, a task belongs to the alias for which it was declared."""
    with (
        backends(reports={"BACKEND": OWN, "QUEUES": []}),
        written("@task(backend='reports')\ndef send(): ...\n") as made,
    ):
        made.send.enqueue()
        jobs.drain()
        found = tasks.task_backends["default"].get_result(str(Job.objects.get().pk))
    assert heard == [("OwnBackend", "reports", "reports")] * 3
    assert found.backend == "default"  # who is asked, and may have the queue, answers


def test_job_type_is_told_by_the_backend_that_names_its_queue(jobs: JobsKit, heard: list[Any]) -> None:
    """What @job declared names no backend; a queue that one of them names comes before any queue of another."""
    with backends(reports=REPORTS):
        own.using(queue_name="reports").enqueue(n=1)
        jobs.drain()
    assert [(sender, alias) for sender, alias, _ in heard] == [("OwnBackend", "reports")] * 2


def test_result_is_read_by_any_alias_and_says_whose_it_is() -> None:
    """One alias reads what another enqueued on the same database; an alias without its queue does not take it over."""
    named = {"BACKEND": DURABLE, "QUEUES": ["default"]}
    with backends(reports=REPORTS, small=named):
        result = add.using(backend="reports", queue_name="reports").enqueue(1)
        read = {alias: tasks.task_backends[alias].get_result(result.id).backend for alias in ("reports", "small")}
    assert read == {"reports": "reports", "small": "reports"}


def test_queue_of_nobody_is_answered_by_who_is_asked() -> None:
    """After the queue was taken out of the settings, its results are still read."""
    with backends(reports=REPORTS):
        result = add.using(backend="reports", queue_name="reports").enqueue(1)
    small = {"BACKEND": DURABLE, "QUEUES": ["small"]}
    with backends(default=small, other=small):
        assert tasks.task_backends["other"].get_result(result.id).backend == "other"


def test_backend_of_another_database_is_not_told() -> None:
    """A job is told by a backend that stores where it is, also when another one names its queue."""
    away = {"BACKEND": OWN, "QUEUES": ["default"], "OPTIONS": {"DATABASE": "elsewhere"}}
    with backends(away=away):
        result = add.enqueue(1)
        assert tasks.task_backends["default"].get_result(result.id).backend == "default"
        job = Job.objects.get(pk=result.id)
        assert (alias_of(job, using="default"), alias_of(job, using="elsewhere")) == ("default", "away")
