"""Jobs that wait: promotion of due ones, the end of useless ones, and what is next."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import cast

from django.db.models import Min

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
    """Dead-letter jobs that could not start while they were useful; returns id, type and owner of each."""
    late = Job.objects.using(using).filter(
        state__in=["scheduled", "queued", "failed"], useful_until__lte=database_now(using)
    )
    if not late.exists():
        return []
    rows = run("expire", {"limit": limit}, using=using)
    for row in rows:
        telemetry.emit("job.expire", job_id=row["id"])
        telemetry.emit("job.dead", job_id=row["id"], reason="expired")
    return rows


def next_due(queues: Sequence[str], *, using: str) -> datetime | None:
    """Return when the next waiting job becomes due, or None when nothing waits."""
    waiting = Job.objects.using(using).filter(state__in=["scheduled", "failed"], queue_name__in=list(queues))
    return cast("datetime | None", waiting.aggregate(next=Min("available_at"))["next"])


def has_suspect(queues: Sequence[str], *, types: Sequence[KnownType], using: str) -> bool:
    """Say whether a due job of a known type waits that must run alone."""
    suspects = Job.objects.using(using).filter(state="queued", queue_name__in=list(queues)).exclude(isolation="")
    due = suspects.filter(available_at__lte=database_now(using)).values_list("job_type", "payload_version")
    known = {(item.job_type, item.payload_version) for item in types}
    return not known.isdisjoint(due.filter(job_type__in={name for name, _ in known}).distinct())


def known_queues(*, using: str) -> list[str]:
    """Return the queues in which something waits; one index probe per queue."""
    found: list[str] = []
    for states in (["queued"], ["scheduled", "failed"]):
        last: str | None = None
        while True:
            waiting = Job.objects.using(using).filter(state__in=states)
            if states == ["queued"]:
                waiting = Job.objects.using(using).filter(state="queued", isolation="")
            if last is not None:
                waiting = waiting.filter(queue_name__gt=last)
            last = waiting.aggregate(first=Min("queue_name"))["first"]
            if last is None:
                break
            found.append(last)
    return sorted(set(found))
