"""Storing new jobs, with the decision about their idempotency keys made by the statement itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.db import connections

from django_jobs import telemetry
from django_jobs.store import notify
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
    resource: str
    serial_key: str
    serial_skips: bool
    correlation_id: str
    subject: str
    traceparent: str
    batch_id: uuid.UUID | None = None
    chain_id: uuid.UUID | None = None
    chain_position: int | None = None
    context: str | None = None


_COLUMNS = tuple(field.name for field in fields(NewJob))
_columns = attrgetter(*_COLUMNS)
# What the jobs of one statement share; every other column is given per job.
SHARED = (
    "job_type",
    "queue_name",
    "priority",
    "tenant",
    "payload_version",
    "key_scope",
    "ttl_seconds",
    "run_after",
    "delay",
    "useful_for",
    "owner",
    "resource",
    "serial_skips",
    "correlation_id",
    "traceparent",
    "batch_id",
    "context",
)
_shared = attrgetter(*SHARED)


def enqueue(new: NewJob, *, using: str) -> str | None:
    """Store the job in the transaction that is open, if any.

    Returns:
        The new job's state, or None when nothing was stored because somebody else holds the key.
    """
    may_notify = notify.may_notify(new.queue_name, using=using)
    rows = run("enqueue", {**dict(zip(_COLUMNS, _columns(new), strict=True)), "notify": may_notify}, using=using)
    if not rows:
        return None
    if rows[0].get("woken"):
        notify.note_notified(new.queue_name, using=using)
    _tell(new)
    state: str = rows[0]["state"]
    return state


def enqueue_many(news: Sequence[NewJob], *, using: str, now: datetime | None = None) -> dict[uuid.UUID, str]:
    """Store the jobs in the transaction that is open, if any, by one statement for those that share their terms.

    Keys are taken in the order of the sequence. No two of the jobs may have one key. With ``now`` all are enqueued at
    that instant of the database's clock, so that several calls make one order.

    Returns:
        The state of each job that was stored; one is missing when somebody else holds its key.
    """
    states: dict[uuid.UUID, str] = {}
    for terms, group in groupby(news, key=_shared):
        jobs = list(group)
        queue_name = jobs[0].queue_name
        may_notify = notify.may_notify(queue_name, using=using)
        params = {**dict(zip(SHARED, terms, strict=True)), **_rows(jobs, using), "notify": may_notify}
        if now is not None:
            params["now"] = now
        rows = run("queries/enqueue_many", params, using=using)
        states |= {row["id"]: row["state"] for row in rows}
        if rows and rows[0].get("woken"):
            notify.note_notified(queue_name, using=using)
    for new in news:
        if new.job_id in states:
            _tell(new)
    return states


def _tell(new: NewJob) -> None:
    telemetry.emit(
        "job.enqueue", job_id=new.job_id, job_type=new.job_type, queue_name=new.queue_name, priority=new.priority
    )


def _rows(news: list[NewJob], using: str) -> dict[str, Any]:
    """Spell what differs: a list per column, or (SQLite reads JSON only) one text of rows."""
    if connections[using].vendor == "postgresql":
        return {
            "job_ids": [new.job_id for new in news],
            "fingerprints": [new.payload_fingerprint for new in news],
            "arguments": [new.arguments for new in news],
            "keys": [new.key for new in news],
            "subjects": [new.subject for new in news],
            "replaced": [new.replaces for new in news],
            "serial_keys": [new.serial_key for new in news],
        }
    rows = [
        (
            new.job_id.hex,
            new.payload_fingerprint,
            new.arguments,
            new.key,
            new.subject,
            new.replaces.hex if new.replaces else None,
            new.serial_key,
        )
        for new in news
    ]
    return {"rows": json.dumps(rows)}
