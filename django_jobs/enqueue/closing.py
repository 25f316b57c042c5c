"""Closing a batch: after the commit of a member's end, and again by maintenance for what a crash left behind.

Whoever ends a member looks after its own commit, so the later of two last members sees that both have ended. Closing
holds the batch's row, and the row can be closed once; the callback is enqueued in the same transaction, under the key
``batch:<id>``.
"""

from __future__ import annotations

import uuid
from functools import partial

from django.db import transaction

from django_jobs import faults, telemetry
from django_jobs.enqueue.calls import job_of
from django_jobs.enqueue.membership import is_open_here
from django_jobs.models import Batch
from django_jobs.store import NewJob
from django_jobs.store import enqueue as store_job
from django_jobs.store.batches import Standing, find_batch, lock_open, note_told, settle, standing, unfinished
from django_jobs.store.brief import afresh
from django_jobs.store.keys import key_holder

ENDS = ("succeeded", "cancelled", "resolved", "dead")
ID, COUNTS = "batch_id", "batch_counts"  # parameters that a callback may have
BLOCKED = "batch waits for a dead letter"


def close_batch(batch_id: uuid.UUID, *, using: str) -> bool:
    """Close a batch of which all members have ended; its owner is told, once, when dead letters keep it open.

    Returns:
        Whether this call closed it.
    """
    if is_open_here(batch_id) or unfinished(batch_id, using=using):
        return False
    faults.reached("batch.before_close", using=using)
    with afresh(using):
        batch = lock_open(batch_id, using=using)
        if batch is None:
            return False
        found = standing(batch_id, using=using)  # a statement after the lock: it sees what was committed before
        if not found.may_close(batch.on_dead):
            _tell_once(batch, found, using=using)
            return False
        close_held(batch, found, using=using)
    faults.reached("batch.after_commit", using=using)
    return True


def close_after_commit(batch_id: uuid.UUID | None, *, using: str) -> None:
    """Look at a batch once the transaction that is open has committed, at once without one; maintenance looks again."""
    if batch_id is not None:
        transaction.on_commit(partial(close_batch, batch_id, using=using), using=using, robust=True)


def close_held(batch: Batch, found: Standing, *, using: str) -> None:
    """Close a batch in the transaction that is open and holds its row, or has made it."""
    job_id = _enqueue_callback(batch, found, using=using) if batch.callback else None
    settle(batch, found, callback_job_id=job_id, using=using)
    faults.reached("batch.after_update", using=using)
    outcome = "succeeded" if found.succeeded == found.total else "mixed"
    _tell_after_commit("batch.close", batch_id=batch.pk, total=found.total, outcome=outcome, using=using)


def _enqueue_callback(batch: Batch, found: Standing, *, using: str) -> uuid.UUID:
    known = {COUNTS: {**{name: getattr(found, name) for name in ENDS}, "total": found.total}}
    new = job_of(batch.callback, key=f"batch:{batch.pk}", known=known, correlation_id=str(batch.pk))
    same = {"queue_name": new.queue_name, "job_type": new.job_type, "priority": new.priority}
    _tell_after_commit("batch.callback", batch_id=batch.pk, job_id=new.job_id, **same, using=using)
    return enqueue_kept(new, using=using)


def enqueue_kept(new: NewJob, *, using: str) -> uuid.UUID:
    """Store a job that was promised, whatever its queue holds; returns who has its key: it, or a job before it."""
    telemetry.emit("enqueue.exempt", queue_name=new.queue_name, count=1)
    if store_job(new, using=using) is not None:
        return new.job_id
    holder = key_holder(new.key_scope, new.key, using=using)
    return holder.job_id if holder else new.job_id


def _tell_once(batch: Batch, found: Standing, *, using: str) -> None:
    if found.open or not note_told(batch.pk, using=using):
        return
    message = f"Batch {batch.pk} stays open: {found.dead} of its {found.total} members are dead letters."
    alert = {"reason": BLOCKED, "job_id": None, "job_type": batch.callback_type, "owner": batch.owner}
    _tell_after_commit("owner.alert", **alert, message=message, using=using)


def _tell_after_commit(event: str, *, using: str, **fields: object) -> None:
    transaction.on_commit(partial(telemetry.emit, event, using=using, **fields), using=using)


def state_of(batch_id: uuid.UUID, *, using: str) -> tuple[Batch, Standing] | None:
    """Return a batch with how its members stand now; once it is closed, how they stood then. None: there is none."""
    batch = find_batch(batch_id, using=using)
    if batch is None:
        return None
    if batch.closed_at is None:
        return batch, standing(batch_id, using=using)
    counts = {name: getattr(batch, name) or 0 for name in ENDS}
    return batch, Standing(**counts)
