"""Replays of many: their rows, who works on one, and what became of each job. Nothing here replays."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet

from django_jobs import telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import ReplayOutcome, ReplayState
from django_jobs.models import ReplayItem, ReplayRequest
from django_jobs.store.times import database_now, read_now

ACTIVE = (ReplayState.WAITING.value, ReplayState.RUNNING.value)


def create(request_id: uuid.UUID, values: Mapping[str, Any], *, using: str) -> ReplayRequest:
    """Store a request in the transaction of the decision that made it; it is due at once."""
    now = read_now(using)
    row = ReplayRequest.objects.using(using).create(id=request_id, created_at=now, next_at=now, **values)
    telemetry.emit("replay.requested", request_id=request_id, total=row.total)
    return row


def _due(using: str) -> QuerySet[ReplayRequest]:
    now = database_now(using)
    free = Q(lease_owner__isnull=True) | Q(lease_expires_at__lte=now)
    return ReplayRequest.objects.using(using).filter(free, state__in=ACTIVE, next_at__lte=now)


def is_due(using: str) -> bool:
    """Say whether a request waits for somebody to work on it; one read of a small index."""
    return _due(using).exists()


def take(worker_id: uuid.UUID, *, lease: timedelta, using: str) -> ReplayRequest | None:
    """Lease the request that has waited longest, or go on with the one that this worker holds."""
    mine = ReplayRequest.objects.using(using).filter(state__in=ACTIVE, lease_owner=worker_id)
    for row in (*mine.order_by("id")[:1], *_due(using).order_by("next_at", "id")[:5]):
        if keep(row, worker_id, lease=lease, using=using):
            row.refresh_from_db(using=using)
            return row
    return None


def keep(row: ReplayRequest, worker_id: uuid.UUID, *, lease: timedelta, using: str) -> bool:
    """Renew the lease of a request; False when it is over for this worker: ended, cancelled, or another's."""
    now = read_now(using)
    free = Q(lease_owner__isnull=True) | Q(lease_expires_at__lte=now) | Q(lease_owner=worker_id)
    rows = ReplayRequest.objects.using(using).filter(free, pk=row.pk, state__in=ACTIVE)
    changed = rows.update(state=ReplayState.RUNNING.value, lease_owner=worker_id, lease_expires_at=now + lease)
    return changed == 1


def move_on(
    row: ReplayRequest, worker_id: uuid.UUID, *, using: str, last_job_id: uuid.UUID | None, next_at: datetime
) -> None:
    """Remember how far the request is and when its next job may be replayed; of its holder alone."""
    ReplayRequest.objects.using(using).filter(pk=row.pk, lease_owner=worker_id).update(
        last_job_id=last_job_id, next_at=next_at
    )


def finish(request_id: uuid.UUID, state: ReplayState, *, using: str, because: str = "") -> bool:
    """End a request; False when it had ended before."""
    changed = (
        ReplayRequest.objects.using(using)
        .filter(pk=request_id, state__in=ACTIVE)
        .update(
            state=state.value,
            finished_at=database_now(using),
            stopped_because=because,
            lease_owner=None,
            lease_expires_at=None,
        )
    )
    if changed:
        telemetry.emit("replay.finished", request_id=request_id, state=state.value)
    return bool(changed)


def note_item(request_id: uuid.UUID, job_id: uuid.UUID, outcome: ReplayOutcome, *, using: str, why: str = "") -> bool:
    """Record what became of a job of the request; False when that is on record already."""
    item = ReplayItem(
        id=uuid7(),
        request_id=request_id,
        job_id=job_id,
        outcome=outcome.value,
        why=why[:2000],
        created_at=read_now(using),
    )
    rows = ReplayItem.objects.using(using)
    if rows.filter(request_id=request_id, job_id=job_id).exists():
        return False
    rows.bulk_create([item], ignore_conflicts=True)
    return rows.filter(pk=item.pk).exists()


def lock_request(request_id: uuid.UUID, *, using: str) -> bool:
    """Hold the row of a request until the transaction ends, so that nobody ends it meanwhile; False: it is over."""
    rows = ReplayRequest.objects.using(using).select_for_update(no_key=True).filter(pk=request_id)
    return rows.values_list("state", flat=True).first() in ACTIVE
