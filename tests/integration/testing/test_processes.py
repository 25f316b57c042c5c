"""Real workers of the kit: on the test's database, killed, stopped and asked to end, with faults of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group

from django_jobs.exceptions import KitError
from django_jobs.models import Attempt, Job
from django_jobs.testing import WorkerProcess
from tests.databases import Server
from tests.integration.testing.worker_handlers import worker_row

RULES = {"IMPORTS": ["tests.integration.testing.worker_handlers"]}


@pytest.mark.django_db
def test_a_test_that_never_commits_is_told() -> None:
    """A worker would see none of its rows."""
    with pytest.raises(KitError, match="This test never commits"):
        WorkerProcess().start()


def test_a_worker_that_was_not_started_is_told() -> None:
    """It has no process id, and to kill it does nothing."""
    worker = WorkerProcess()

    worker.kill()
    with pytest.raises(KitError, match="Start the worker first"):
        _ = worker.pid


@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_settings_in_no_module_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process could not read what ``settings.configure()`` was given here."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)

    with pytest.raises(KitError, match="reads its settings from a module"):
        WorkerProcess().start()


def test_a_fault_is_checked() -> None:
    """A kind and a point that do not exist are told before anything is started."""
    with pytest.raises(ValueError, match="There is no kind of fault 'explode'"):
        WorkerProcess(fault=("explode", "handler.after"))
    with pytest.raises(ValueError, match="There is no fault point 'nowhere'"):
        WorkerProcess(fault=("kill", "nowhere"))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_killed_at_a_point(server: Server, jobs_worker: Callable[..., WorkerProcess]) -> None:
    """The fault kills its process once, and the next one runs the job to its end; then it ends when it is asked."""
    job_id = worker_row.enqueue(name="row").id

    worker = jobs_worker(rules=RULES, fault=("kill", "handler.after"))
    worker.wait_for(lambda: Job.objects.get(pk=job_id).state == "succeeded", what="the job")

    assert worker.fault_fired
    outcomes = Attempt.objects.filter(job_id=job_id).order_by("number").values_list("outcome", flat=True)
    assert Group.objects.count() == 1
    assert list(outcomes) == ["lost", "succeeded"]
    assert worker.is_running
    assert worker.term() == 0
