"""Django's signals of tasks: who hears them, and of which backend."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import override_settings

from django_jobs.backends import task_signals
from django_jobs.backends.task_names import signals
from django_jobs.define.django_task import backend_alias, durable_aliases
from django_jobs.testing import JobsKit
from tests.integration.tasks.declared import add, fails
from tests.integration.tasks.modules import IMMEDIATE
from tests.integration.tasks.own_backend import OwnBackend

NAMES = ("task_enqueued", "task_started", "task_finished")


OWN = {"TASKS": {"default": {"BACKEND": f"{OwnBackend.__module__}.OwnBackend", "QUEUES": []}}}


@contextmanager
def heard() -> Iterator[list[tuple[str, Any]]]:
    """Give the signals of a block, each with its sender."""
    found: list[tuple[str, Any]] = []
    receivers = {name: lambda sender, name=name, **_: found.append((name, sender)) for name in NAMES}
    for name, receiver in receivers.items():
        getattr(signals(), name).connect(receiver, weak=False)
    try:
        yield found
    finally:
        for name, receiver in receivers.items():
            getattr(signals(), name).disconnect(receiver)


@pytest.mark.django_db(transaction=True)
def test_subclass_sends_the_signals_as_itself(jobs: JobsKit) -> None:
    """A project's own backend is the sender, from the enqueue to the end."""
    with override_settings(**OWN), heard() as found:
        add.enqueue(1)
        jobs.drain()
    assert found == [(name, OwnBackend) for name in NAMES]


def test_subclass_is_found_in_the_settings() -> None:
    """The aliases of the backend and its subclasses are known; others, and what cannot be imported, are none."""
    more = {"gone": {"BACKEND": "nowhere.Backend"}, "now": {"BACKEND": IMMEDIATE}}
    with override_settings(TASKS={**more, **OWN["TASKS"]}):
        assert durable_aliases() == ["default"]
    with override_settings(TASKS={**more, "own": OWN["TASKS"]["default"]}):
        assert backend_alias() == "own"
    with override_settings(TASKS=more):
        assert (durable_aliases(), backend_alias()) == ([], "default")


def test_process_with_a_subclass_connects_the_signals() -> None:
    """The app connects them when it is ready, whichever of the backend's kinds the settings name."""
    program = (
        "import django\n"
        "from django.conf import settings\n"
        "from testproject import settings as project\n"
        "names = {name: getattr(project, name) for name in dir(project) if name.isupper()}\n"
        f"settings.configure(**{{**names, 'TASKS': {OWN['TASKS']!r}}})\n"
        "django.setup()\n"
        "from django_jobs import telemetry\n"
        "from django_jobs.backends import task_signals\n"
        "assert task_signals._told in telemetry._receivers\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.django_db(transaction=True)
def test_receiver_that_fails_keeps_no_other_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    """Each receiver of task_enqueued hears it; the error of one is logged, and the enqueue has succeeded."""

    def fails(**_: object) -> None:
        raise ValueError("a bad receiver")

    signals().task_enqueued.connect(fails)
    try:
        with heard() as found, caplog.at_level(logging.ERROR, "django.dispatch"):
            result = add.enqueue(1)
    finally:
        signals().task_enqueued.disconnect(fails)
    assert result.outcome == "created"
    assert [name for name, _ in found] == ["task_enqueued"]
    assert "a bad receiver" in caplog.text


@pytest.mark.django_db
def test_failure_is_logged_where_errors_alone_are(jobs: JobsKit, caplog: pytest.LogCaptureFixture) -> None:
    """A project that logs errors of tasks alone hears of the one that failed for good, once, and of nothing else."""
    name = task_signals._LOGGER.name
    with caplog.at_level(logging.ERROR, name):
        add.enqueue(1)
        failed = fails.enqueue()
        jobs.run_until_idle()
    told = [record.getMessage() for record in caplog.records if record.name == name]
    assert told == [f"Task id={failed.id} path={fails.module_path} state=FAILED"]


@pytest.mark.django_db
def test_results_of_two_reads_are_equal() -> None:
    """What the enqueue returned equals what is read later: its outcome is about the call."""
    result = add.enqueue(1)
    assert result == add.get_result(result.id)
