"""The task of a job that is stored: as it was enqueued, or what stands for it when the code has none."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_jobs.backends.task_declared import task_of
from django_jobs.backends.task_names import Task
from django_jobs.define import registry
from django_jobs.models import Job


def task_as_stored(job: Job, alias: str) -> Any:
    """Return the task with what ``using()`` said when the job was enqueued.

    Nothing is checked again: a result stays readable when its queue is none of the backend's any more.
    """
    task = task_of(job.job_type)
    if task is None:
        return _registered(job) or GoneTask(job, alias)
    stored = object.__new__(type(task))
    said = {"priority": job.priority, "queue_name": job.queue_name, "backend": alias, "run_after": _due(job)}
    for field in fields(task):
        object.__setattr__(stored, field.name, said.get(field.name, getattr(task, field.name)))
    return stored


def _due(job: Job) -> datetime | None:
    """Return the start that was asked for; None is at once, or a replay that has begun a new count of its time."""
    is_later = job.generation == 1 and job.generation_started_at > job.created_at
    return local_time(job.generation_started_at) if is_later else None


def local_time(value: datetime | None) -> datetime | None:
    """Return a time as Django's backends do: naive in the current zone where the project has no time zones."""
    return value if value is None or settings.USE_TZ else timezone.make_naive(value)


def _registered(job: Job) -> Any:
    definition = registry.find(job.job_type)
    return None if definition is None or definition.is_stock_task else registry.get(job.job_type)


class GoneTask(Task):  # type: ignore[misc]
    """Stands for a task that this code does not have: renamed, removed, or of a newer release."""

    def __init__(self, job: Job, alias: str) -> None:
        set_field = object.__setattr__
        set_field(self, "func", _gone)
        set_field(self, "priority", job.priority)
        set_field(self, "backend", alias)
        set_field(self, "queue_name", job.queue_name)
        set_field(self, "run_after", _due(job))
        set_field(self, "takes_context", False)
        set_field(self, "job_type", job.job_type)

    @property
    def module_path(self) -> str:
        """The name under which its jobs are stored."""
        return str(self.job_type)

    @property
    def name(self) -> str:
        """The last part of it."""
        return self.module_path.rpartition(".")[2]

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def _gone(*_: object, **__: object) -> None:
    msg = "This code has no such task."
    raise LookupError(msg)
