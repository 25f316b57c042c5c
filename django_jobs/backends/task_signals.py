"""Django's signals of tasks, sent by the worker when the rows say so."""

from __future__ import annotations

import logging
from typing import Any

from django_jobs import telemetry
from django_jobs.backends.task_names import TaskResultStatus, signals, tasks
from django_jobs.backends.task_results import read_result
from django_jobs.define import registry

_LOGGER = logging.getLogger("django.tasks" if tasks.__name__ == "django.tasks" else "django_tasks")
_OWN_RECEIVERS = 1  # Django's, which writes the log


def connect() -> None:
    """Send the signals from now on, in this process."""
    telemetry.subscribe(_told)


def _told(event: str, fields: dict[str, object]) -> None:
    if event == "attempt.started":
        _send("task_started", fields, level=logging.INFO)
    elif event == "attempt.ended":
        # Django's receiver logs a failure as an error: a project that logs errors alone has to hear it.
        _send("task_finished", fields, level=logging.INFO if fields["outcome"] == "succeeded" else logging.ERROR)


def _send(name: str, fields: dict[str, object], *, level: int) -> None:
    signal: Any = getattr(signals(), name)
    if len(signal.receivers) <= _OWN_RECEIVERS and not (_LOGGER.isEnabledFor(level) and _is_stock(fields)):
        return  # nobody listens, and the package has log lines of its own: the read would be for nothing
    result = read_result(str(fields["job_id"]), using=str(fields["using"]))
    finished = result.status in {TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED}
    if finished == (name == "task_finished"):
        signal.send_robust(type(tasks.task_backends[result.backend]), task_result=result)


def _is_stock(fields: dict[str, object]) -> bool:
    definition = registry.find(str(fields["job_type"]))
    return definition is not None and definition.is_stock_task
