"""Asking which jobs a test enqueued."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django_jobs.define import registry
from django_jobs.define.definition import DurableJob
from django_jobs.exceptions import PayloadError
from django_jobs.models import Job


def type_of(job_type: str | DurableJob[..., Any]) -> str:
    """Return the stored name of a job type."""
    return job_type if isinstance(job_type, str) else job_type.definition.job_type


def arguments_of(job: Job) -> dict[str, Any]:
    """Return a job's arguments as its handler gets them; of a type that this code does not know, as JSON has them."""
    stored: dict[str, Any] = json.loads(job.payload.arguments)
    definition = registry.find(job.job_type)
    try:
        return stored if definition is None else definition.restore(stored)
    except PayloadError:
        return stored


def check_enqueued(
    job_type: str | DurableJob[..., Any], arguments: Mapping[str, Any], *, count: int | None, using: str
) -> list[Job]:
    """Return the jobs of a type that have these arguments among theirs, oldest first, in whatever state they are.

    Raises:
        AssertionError: There is none, or ``count`` is given and there are more or fewer.
    """
    name = type_of(job_type)
    everything = list(Job.objects.using(using).select_related("payload").order_by("created_at", "pk"))
    found = [job for job in everything if job.job_type == name and _has(job, arguments)]
    if (count is None and found) or len(found) == count:
        return found
    wanted = "at least one" if count is None else str(count)
    lines = [f"  {job.job_type} {job.payload.arguments} ({job.state})" for job in everything] or ["  none"]
    what = f"{name} with {dict(arguments)!r}" if arguments else name
    raise AssertionError(f"Expected {wanted} of {what}, and found {len(found)}. The jobs are:\n" + "\n".join(lines))


def _has(job: Job, wanted: Mapping[str, Any]) -> bool:
    arguments = arguments_of(job)
    return all(name in arguments and arguments[name] == value for name, value in wanted.items())
