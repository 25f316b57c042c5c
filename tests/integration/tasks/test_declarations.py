"""Which tasks workers know, and which declarations are refused."""

from __future__ import annotations

import pytest
from django.db import connections
from django.test import override_settings

from django_jobs import job
from django_jobs.backends import tasks as module
from django_jobs.backends.task_declared import adopt_all
from django_jobs.backends.task_names import InvalidTask, tasks
from django_jobs.define import registry
from django_jobs.exceptions import DefinitionError
from django_jobs.models import Job
from django_jobs.testing import JobsKit
from tests.integration.tasks.declared import own
from tests.integration.tasks.modules import DURABLE, IMMEDIATE, backends, run_again, written

pytestmark = pytest.mark.django_db

TWICE = "@task\ndef send():\n    return 1\nfirst = send\n@task\ndef send():\n    return 2\n"


def test_second_task_of_one_name_is_refused() -> None:
    """A worker finds a function by its path, and could run only one of the two."""
    with pytest.raises(DefinitionError, match=r"tests_written_tasks\.send is declared twice"), written(TWICE):
        pass


def test_second_job_type_of_one_function_name_is_refused() -> None:
    """Job types that get their name from the same two functions are refused too."""

    def declare(value: int) -> None:
        def send() -> int:
            return value

        send.__qualname__ = "send"
        job(type="tests.sent")(send)

    declare(1)
    with pytest.raises(DefinitionError, match=r"'tests\.sent' is declared twice"):
        declare(2)


def test_reloaded_module_declares_its_tasks_anew(jobs: JobsKit) -> None:
    """A reload is no second declaration, and the new function is the one that runs."""
    with written("@task\ndef send():\n    return 1\n") as made:
        run_again(made, "# moved\n@task\ndef send():\n    return 2\n")
        result = made.send.enqueue()
        jobs.drain()
        result.refresh()
    assert result.return_value == 2


def test_same_function_may_be_declared_again() -> None:
    """Two tasks of one function, as of other queues, are two ways to enqueue it."""
    with written("def send():\n    return 1\nquick = task(queue_name='quick')(send)\nsend = task(send)\n") as made:
        assert (made.quick.enqueue().task.queue_name, made.send.enqueue().task.queue_name) == ("quick", "default")


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("send = task(lambda: 1)", "A lambda cannot be a task"),
        ("def make():\n    def send():\n        pass\n    return task(send)\nmake()", "module level"),
        ("@task\ndef send():\n    yield 1\n", "generator"),
    ],
)
def test_function_that_no_worker_could_find_or_run_is_refused(source: str, match: str) -> None:
    """The declaration itself is refused, long before a job waits for a worker that knows it."""
    with pytest.raises(InvalidTask, match=match), written(source):
        pass


def test_task_of_another_backend_is_known_to_workers_where_they_import_it(jobs: JobsKit) -> None:
    """``using(backend=…)`` brings a task here that was declared for another backend, and it has a handler."""
    with (
        backends(now={"BACKEND": IMMEDIATE}),
        override_settings(DJANGO_JOBS={"IMPORTS": ["tests_written_tasks"]}),
        written("@task(backend='now')\ndef send():\n    return 3\nunfit = task(backend='now')(lambda: 1)\n") as made,
    ):
        adopt_all()  # as each process does when it starts
        assert registry.find("tests_written_tasks.send") is not None
        result = made.send.using(backend="default").enqueue()
        jobs.drain()
        result.refresh()
    assert result.return_value == 3


def test_task_of_another_backend_that_no_worker_knows_is_refused() -> None:
    """A job that nobody could run is not stored; the error names both mends."""
    with (
        backends(now={"BACKEND": IMMEDIATE}),
        written("@task(backend='now')\ndef send():\n    return 3\n") as made,
        pytest.raises(InvalidTask, match=r"@task\(backend=…\), or name its module in DJANGO_JOBS\['IMPORTS'\]"),
    ):
        made.send.using(backend="default").enqueue()
    assert not Job.objects.exists()


def test_database_of_the_options_holds_for_job_types_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What @job declared goes where the backend stores, unless its own ``using()`` says otherwise."""
    asked: list[str | None] = []

    def enqueue(self: object, *args: object, **kwargs: object) -> None:
        asked.append(self.options.database)  # type: ignore[attr-defined]
        raise LookupError

    monkeypatch.setattr(type(own), "enqueue", enqueue)
    backend = module.DurableBackend("default", {"OPTIONS": {"DATABASE": "default"}})
    for task in (own, own.using(database="elsewhere")):
        with pytest.raises(LookupError):
            backend.enqueue(task, [], {"n": 1})
    assert asked == ["default", "elsewhere"]
    assert "default" in connections


def test_second_durable_backend_answers_for_its_own_results(jobs: JobsKit) -> None:
    """A task that is enqueued through another alias says so, and its result is read through that one."""
    with backends(second={"BACKEND": DURABLE, "QUEUES": [], "OPTIONS": {"ATOMIC": True}}):
        from tests.integration.tasks.declared import add

        result = add.using(backend="second", priority=9).enqueue(1)
        assert (result.backend, result.task.backend, result.task.priority) == ("second", "second", 9)
        read = tasks.task_backends["second"].get_result(result.id)
        assert (read.backend, read.task.backend, read.task.priority) == ("second", "second", 9)
        jobs.drain()
        result.refresh()
        assert (result.return_value, result.backend, result.task.priority) == (3, "second", 9)
