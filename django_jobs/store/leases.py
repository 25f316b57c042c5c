"""Proof of ownership, renewal, and what becomes of a write that was refused."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import NoReturn, Protocol

from django.db.models import F

from django_jobs import telemetry
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Attempt
from django_jobs.store import times
from django_jobs.store.statements import run


class Held(Protocol):
    """What proves that an attempt owns its job: the attempt id, made by the claimer and stored on the job."""

    @property
    def job_id(self) -> uuid.UUID:
        """The job."""

    @property
    def attempt_id(self) -> uuid.UUID:
        """The attempt: the guard of every decision."""

    @property
    def number(self) -> int:
        """The attempt's number, which is the job's fence."""

    @property
    def using(self) -> str:
        """The database alias."""


def groups_of(held: Held) -> dict[str, object]:
    """Return what metrics of this attempt are grouped by.

    Proofs that know nothing but the attempt (those found again after a lost reply) leave it empty.
    """
    return {
        "job_type": getattr(held, "job_type", ""),
        "queue_name": getattr(held, "queue_name", ""),
        "priority": getattr(held, "priority", 0),
    }


def told_of(held: Held) -> dict[str, object]:
    """Return what telemetry is told of an attempt beside the event."""
    return {"job_id": held.job_id, "attempt_id": held.attempt_id, "number": held.number, **groups_of(held)}


def refused(held: Held, operation: str) -> NoReturn:
    """Tell and raise that a write of a worker which no longer owns the job changed nothing.

    Raises:
        LeaseLostError: Always.
    """
    telemetry.emit("lease.refused", operation=operation, **told_of(held))
    msg = (
        f"Attempt {held.number} of job {held.job_id} no longer owns the job, so its '{operation}' was refused and "
        "nothing changed."
    )
    raise LeaseLostError(msg, operation=operation)


def note_refusal(held: Held, operation: str) -> None:
    """Keep on the attempt's own row that it came back too late; evidence, so it needs no ownership."""
    Attempt.objects.using(held.using).filter(pk=held.attempt_id).update(
        refused_count=F("refused_count") + 1,
        refused_at=times.database_now(held.using),
        refused_operation=operation[:32],
    )


def renew(held: Held, *, progress: int, total: int | None, lease: timedelta, ends_at: datetime) -> datetime:
    """Extend the lease because ``progress`` has grown; never beyond ``ends_at``, the end of the total run time.

    Returns:
        When the lease now ends.

    Raises:
        LeaseLostError: The attempt no longer owns the job, or the stored progress is already as large.
    """
    rows = run(
        "renew",
        {
            "job_id": held.job_id,
            "attempt_id": held.attempt_id,
            "progress": progress,
            "progress_total": total,
            "lease": lease,
            "ends_at": ends_at,
        },
        using=held.using,
    )
    if not rows:
        refused(held, "renew")
    telemetry.emit("job.renew", progress=progress, **told_of(held))
    expires: datetime = rows[0]["lease_expires_at"]
    return expires
