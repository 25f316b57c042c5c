"""Rows of batches. Members are jobs that carry the batch's id; no transition of a member ever writes its batch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import connections
from django.db.models import Count, Q

from django_jobs.domain.states import JobState, OnDead
from django_jobs.models import Batch, Job
from django_jobs.store.statements import run
from django_jobs.store.times import read_now

AT_ONCE = 100
_DEAD = Q(state=JobState.DEAD_LETTERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the members stand; each is counted once.

    Args:
        open: They wait or run.
        succeeded: They succeeded.
        cancelled: They were cancelled.
        resolved: They were dead letters, and somebody settled them.
        dead: They are dead letters that wait for a human.
    """

    open: int = 0
    succeeded: int = 0
    cancelled: int = 0
    resolved: int = 0
    dead: int = 0

    @property
    def total(self) -> int:
        """All members."""
        return self.open + self.succeeded + self.cancelled + self.resolved + self.dead

    def may_close(self, on_dead: str) -> bool:
        """Whether nothing of it is waited for."""
        return not self.open and (not self.dead or on_dead == OnDead.CONTINUE)


def create(batch: Batch, *, using: str) -> uuid.UUID:
    """Store a batch in the transaction that is open; returns its id, or that of the batch which has its key."""
    Batch.objects.using(using).bulk_create([batch], ignore_conflicts=True)
    same = Q(key=batch.key) if batch.key else Q(pk=batch.pk)
    return Batch.objects.using(using).filter(same).values_list("pk", flat=True).get()


def find_batch(batch_id: uuid.UUID, *, using: str) -> Batch | None:
    """Return the row of a batch, without a lock."""
    return Batch.objects.using(using).filter(pk=batch_id).first()


def is_closed(batch_id: uuid.UUID, *, using: str) -> bool:
    """Say whether a batch is closed, or gone: nothing can become its member any more."""
    return not Batch.objects.using(using).filter(pk=batch_id, closed_at__isnull=True).exists()


def standing(batch_id: uuid.UUID, *, using: str) -> Standing:
    """Count the members."""
    finished = Q(finished_at__isnull=False)
    found = (
        Job.objects.using(using)
        .filter(batch_id=batch_id)
        .aggregate(
            open=Count("pk", filter=~finished & ~_DEAD),
            succeeded=Count("pk", filter=Q(state=JobState.SUCCEEDED)),
            cancelled=Count("pk", filter=Q(state=JobState.CANCELLED)),
            resolved=Count("pk", filter=finished & _DEAD),
            dead=Count("pk", filter=~finished & _DEAD),
        )
    )
    return Standing(**found)


def unfinished(batch_id: uuid.UUID, *, using: str) -> bool:
    """Say whether a member waits or runs: one look into the index, however many have ended."""
    members = Job.objects.using(using).filter(batch_id=batch_id, finished_at__isnull=True)
    return members.exclude(_DEAD).exists()


def lock_open(batch_id: uuid.UUID, *, using: str) -> Batch | None:
    """Lock a batch in the transaction that is open; None when it is closed or gone."""
    rows = Batch.objects.using(using).filter(pk=batch_id, closed_at__isnull=True)
    if connections[using].features.has_select_for_no_key_update:
        rows = rows.select_for_update(no_key=True)
    return rows.first()


def settle(batch: Batch, found: Standing, *, callback_job_id: uuid.UUID | None, using: str) -> bool:
    """Close a batch that the caller holds; False when it was closed already, and nothing was written."""
    rows = Batch.objects.using(using).filter(pk=batch.pk, closed_at__isnull=True)
    return bool(
        rows.update(
            closed_at=read_now(using),
            callback="",
            callback_job_id=callback_job_id,
            succeeded=found.succeeded,
            cancelled=found.cancelled,
            resolved=found.resolved,
            dead=found.dead,
        )
    )


def note_told(batch_id: uuid.UUID, *, using: str) -> bool:
    """Remember that the owner is told that dead letters keep the batch open; False when that was done before."""
    rows = Batch.objects.using(using).filter(pk=batch_id, closed_at__isnull=True, told_at__isnull=True)
    return bool(rows.update(told_at=read_now(using)))


def to_look_at(*, before: datetime | None = None, limit: int = AT_ONCE, using: str) -> list[uuid.UUID]:
    """Return open batches of which no member waits or runs: to be closed, or their owner is to be told.

    ``before`` leaves out those that were made later.
    """
    rows = run("queries/batches_to_close", {"before": before, "limit": limit}, using=using)
    return [row["id"] for row in rows]


def held_by_dead_letters(*, using: str) -> list[Batch]:
    """Return the open batches of which the owner was told, oldest first."""
    rows = Batch.objects.using(using).filter(closed_at__isnull=True, told_at__isnull=False)
    return [row for row in rows.order_by("pk")[:AT_ONCE] if not unfinished(row.pk, using=using)]
