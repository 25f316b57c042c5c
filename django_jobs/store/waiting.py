"""Jobs that wait: promotion of due ones, the end of useless ones, and what is next."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import cast

from django.db.models import Min, Q, QuerySet

from django_jobs import telemetry
from django_jobs.models import Job
from django_jobs.store.claims import KnownType
from django_jobs.store.statements import Row, run
from django_jobs.store.times import database_now


def promote(queues: Sequence[str], *, using: str, limit: int = 500) -> list[uuid.UUID]:
    """Move jobs that have become due to the ready index, at most ``limit`` per queue."""
    if not _due(queues, using):
        return []
    ids = [row["id"] for row in run("promote", {"queues": list(queues), "limit": limit}, using=using)]
    if ids:
        telemetry.emit("job.promote", count=len(ids))
    return ids


def _due(queues: Sequence[str], using: str) -> bool:
    waiting = Job.objects.using(using).filter(state__in=["scheduled", "failed"], queue_name__in=list(queues))
    return waiting.filter(available_at__lte=database_now(using)).exists()


def expire(*, using: str, limit: int = 500) -> list[Row]:
    """Dead-letter jobs that could not start while they were useful; returns id, type and owner of each.

    Looks only at waiting jobs, each kind through its own small index; finished ones cost nothing.
    """
    if not any(waiting.filter(useful_until__lte=database_now(using)).exists() for waiting in _waiting_kinds(using)):
        return []
    rows = run("expire", {"limit": limit}, using=using)
    for row in rows:
        telemetry.emit("job.expire", job_id=row["id"])
        telemetry.emit("job.dead", job_id=row["id"], reason="expired")
    return rows


def _waiting_kinds(using: str) -> list[QuerySet[Job]]:
    """Return jobs that are ready, that must run alone, and that are due later: the conditions of the three indexes."""
    jobs = Job.objects.using(using)
    return [
        jobs.filter(state="queued", isolation=""),
        jobs.filter(state="queued").exclude(isolation=""),
        jobs.filter(state__in=["scheduled", "failed"]),
    ]


def next_due(queues: Sequence[str], *, using: str) -> datetime | None:
    """Return when the next waiting job becomes due, or None when nothing waits."""
    waiting = Job.objects.using(using).filter(state__in=["scheduled", "failed"], queue_name__in=list(queues))
    return cast("datetime | None", waiting.aggregate(next=Min("available_at"))["next"])


def has_suspect(queues: Sequence[str], types: Sequence[KnownType], *, using: str) -> bool:
    """Say whether a due job waits that must run alone and that a worker of these types can run."""
    now = database_now(using)
    suspects = Job.objects.using(using).filter(
        Q(useful_until__isnull=True) | Q(useful_until__gt=now),
        state="queued",
        lane="",
        queue_name__in=list(queues),
        available_at__lte=now,
    )
    found = suspects.exclude(isolation="").values_list("job_type", "payload_version").distinct()
    known = {(item.job_type, item.payload_version) for item in types}
    return any(pair in known for pair in found)


def known_queues(*, using: str) -> list[str]:
    """Return the queues in which something waits; one index probe per queue."""
    ready, alone, later = _waiting_kinds(using)
    found = set(alone.values_list("queue_name", flat=True).distinct())  # few rows, in an index of their own
    for waiting in (ready, later):
        last = waiting.aggregate(first=Min("queue_name"))["first"]
        while last is not None:
            found.add(last)
            last = waiting.filter(queue_name__gt=last).aggregate(first=Min("queue_name"))["first"]
    return sorted(found)
