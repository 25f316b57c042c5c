"""Who holds an idempotency key, read without any lock, and the record of the duplicates that it answered."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.ids import uuid7
from django_jobs.domain.identity import is_live
from django_jobs.domain.states import is_unfinished
from django_jobs.models import DuplicateEnqueue, IdempotencyKey, Job
from django_jobs.store.times import database_now, read_now


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolder:
    """The job that a key stands for."""

    job_id: uuid.UUID
    state: str
    payload_version: int
    payload_fingerprint: str
    is_live: bool


def key_holder(scope: str, key: str, *, using: str) -> KeyHolder | None:
    """Return who holds the key now, or None when nobody does; locks nothing."""
    row = IdempotencyKey.objects.using(using).filter(scope=scope, key=key).first()
    if row is None:
        return None
    job = Job.objects.using(using).filter(pk=row.job_id).only("state", "resolution", "finished_at").first()
    live = is_live(
        unfinished=job is not None and is_unfinished(job.state, job.resolution),
        finished_at=job.finished_at if job else None,
        ttl=timedelta(seconds=row.ttl_seconds),
        expires_at=row.expires_at,
        now=read_now(using),
    )
    return KeyHolder(
        job_id=row.job_id,
        state=job.state if job else "pruned",
        payload_version=row.payload_version,
        payload_fingerprint=row.payload_fingerprint,
        is_live=live,
    )


def note_duplicate(job_id: uuid.UUID, outcome: str, *, using: str) -> None:
    """Keep that an enqueue was answered with this job; an insert, so it waits for nobody."""
    DuplicateEnqueue.objects.using(using).create(
        id=uuid7(), job_id=job_id, outcome=outcome, created_at=database_now(using)
    )
