"""Storing events: the number within the ordering key, the event, and a delivery for each of its routes."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass

from django.db import connections

from django_jobs import telemetry
from django_jobs.store.notify import EVENTS, may_notify, remember_notified, wake
from django_jobs.store.statements import run


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """All columns that a producer decides."""

    event_id: uuid.UUID
    type: str
    version: int
    source: str
    subject: str
    tenant: str
    data: str
    data_digest: str
    dataref: str
    ordering_key: str
    job_id: uuid.UUID | None
    attempt_id: uuid.UUID | None
    fence: int | None
    correlation_id: str
    causation_id: str
    traceparent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """To how many destinations an event goes, and how many of them wait for an earlier event of its key."""

    routed: int
    waiting: int


def emit(new: NewEvent, *, using: str) -> Routed:
    """Store an event and its deliveries in the transaction that is open.

    An ordered event first takes its number from the counter row of its key, in a statement of its own: the lock on that
    row lasts until the transaction ends, and what the next statement sees of the key was committed before the lock was
    given. Whoever stores events of several keys in one transaction does so in the order of the keys.

    Raises:
        RuntimeError: No transaction is open, so number and event would not commit together.
    """
    if not connections[using].in_atomic_block and connections[using].get_autocommit():
        msg = "An event is stored in a transaction."
        raise RuntimeError(msg)
    key_seq: int | None = None
    if new.ordering_key:
        (row,) = run("outbox/number_key", {"ordering_key": new.ordering_key}, using=using)
        key_seq = row["last_seq"]
    params = {**asdict(new), "key_seq": key_seq, "notify": may_notify(EVENTS, using=using)}
    (row,) = run("outbox/emit", params, using=using)
    if row.get("woken"):
        remember_notified(EVENTS, using=using)
    telemetry.emit("event.publish", event_id=new.event_id, event_type=new.type, routed=row["routed"])
    return Routed(routed=row["routed"], waiting=row["waiting"])


def promote_own(event_id: uuid.UUID, *, using: str) -> int:
    """Let waiting deliveries of an event go that nothing precedes any more; returns how many.

    Its producer calls this after the commit: what it looked at before may have been published in between.
    """
    promoted = len(run("outbox/promote_own", {"event_id": event_id}, using=using))
    if promoted:
        wake([EVENTS], using=using)
    return promoted
