"""By which of several backends of the package a stored job counts as enqueued: no row says it."""

from __future__ import annotations

from django_jobs.backends.task_declared import task_of
from django_jobs.backends.task_names import tasks
from django_jobs.define.django_task import durable_aliases
from django_jobs.models import Job


def alias_of(job: Job, *, using: str, asked: str = "") -> str:
    """Return the alias in ``TASKS`` that answers for a job.

    It is one that stores on the job's database and may have its queue: the one that is ``asked`` if that is such a
    one, else one whose ``QUEUES`` names the queue, else one with any queue; of several the one for which the task was
    declared, else the first. When none may have the queue any more, whoever is asked answers, or the first one there.
    """
    there = _storing_on(using)
    queues = {alias: tasks.task_backends[alias].queues for alias in there}
    naming = [alias for alias in there if job.queue_name in queues[alias]]
    admitting = [*naming, *(alias for alias in there if not queues[alias])]
    if asked and (asked in admitting or not admitting):
        return asked
    candidates = naming or admitting or there
    declared: str = getattr(task_of(job.job_type), "backend", "")
    return declared if declared in candidates else next(iter(candidates), "default")


def _storing_on(using: str) -> list[str]:
    """Return the aliases of the package's backends that store there; all of them where none does."""
    aliases = durable_aliases()
    there = [alias for alias in aliases if tasks.task_backends[alias].database == using]
    return there or aliases
