"""Storing a new job, with the decision about its idempotency key made by the statement itself."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from django_jobs import telemetry
from django_jobs.store.statements import run


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """All columns that a producer decides. ``replaces`` is the finished job from which an expired key is taken."""

    job_id: uuid.UUID
    job_type: str
    queue_name: str
    priority: int
    tenant: str
    payload_version: int
    payload_fingerprint: str
    arguments: str
    key_scope: str
    key: str
    ttl_seconds: float
    replaces: uuid.UUID | None
    run_after: datetime | None
    delay: timedelta | None
    useful_for: timedelta | None
    owner: str
    correlation_id: str
    subject: str
    traceparent: str


def enqueue(new: NewJob, *, using: str) -> str | None:
    """Store the job in the transaction that is open, if any.

    Returns:
        The new job's state, or None when nothing was stored because somebody else holds the key.
    """
    rows = run("enqueue", asdict(new), using=using)
    if not rows:
        return None
    telemetry.emit("job.enqueue", job_id=new.job_id, job_type=new.job_type, queue_name=new.queue_name)
    state: str = rows[0]["state"]
    return state
