"""Deliveries on their way: leased by a dispatcher, marked with proof of the attempt, taken back when it is gone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections, transaction

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.deliveries import Following
from django_jobs.domain.events import Confirmed, Event, Parcel
from django_jobs.domain.states import Alone, DeliveryState
from django_jobs.models import Delivery
from django_jobs.store.brief import IDLE, NOT_IDLE
from django_jobs.store.statements import Row, run

RECEIPT_LIMIT = 255
DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """A leased delivery with its event; ``attempt_id`` is the proof of ownership."""

    delivery_id: uuid.UUID
    attempt_id: uuid.UUID
    number: int
    destination: str
    redispatch: int
    failed_count: int
    lost_count: int
    event: Event

    @property
    def parcel(self) -> Parcel:
        """What a publisher gets."""
        return Parcel(delivery_id=self.delivery_id, destination=self.destination, number=self.number, event=self.event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One destination at a glance; ``due_in`` is None when nothing is pending there, ``suspect_in`` when no suspect."""

    destination: str
    due_in: timedelta | None
    suspect_in: timedelta | None  # what an attempt was lost of goes alone, and is no part of ``due_in``
    failures: int
    open_for: timedelta  # how long the breaker still keeps everybody away; zero: not at all
    in_order: bool  # something unfinished has an ordering key
    some_lost: bool  # of any destination: a lease is over, and its worker is not silent

    @property
    def is_due(self) -> bool:
        """Whether something may be claimed now."""
        return self._is_due(self.due_in)

    @property
    def suspect_is_due(self) -> bool:
        """Whether something may be claimed now that has to go alone."""
        return self._is_due(self.suspect_in)

    def _is_due(self, wait: timedelta | None) -> bool:
        return wait is not None and max(wait, self.open_for) <= timedelta(0)


def look_at_destinations(destinations: Sequence[str], *, using: str) -> list[Outlook]:
    """See by one statement where something is due; locks nothing."""
    params = {"destinations": list(destinations), "silent_after": get_settings().silent_after}
    return [_outlook(row) for row in run("outbox/look", params, using=using)]


def _outlook(row: Row) -> Outlook:
    now: datetime = row["now"]
    due, suspect, until = row["available_at"], row["suspect_at"], row["open_until"]
    return Outlook(
        destination=row["destination"],
        due_in=None if due is None else due - now,
        suspect_in=None if suspect is None else suspect - now,
        failures=row["failures"] or 0,
        open_for=timedelta(0) if until is None else max(timedelta(0), until - now),
        in_order=bool(row["in_order"]),
        some_lost=bool(row["some_lost"]),
    )


def claim_deliveries(
    destination: str,
    attempt_ids: Sequence[uuid.UUID],
    *,
    worker_id: uuid.UUID,
    lease: timedelta,
    using: str,
    child: int = 0,
    suspects: bool = False,
    alone: Alone = Alone.NO,
) -> list[ClaimedDelivery]:
    """Lease due deliveries of one destination, one per attempt id, those first that have been due longest.

    ``suspects`` takes those of which an attempt was lost, else all others; ``alone`` says how much company they have.
    """
    params = {
        "destination": destination,
        "attempt_ids": list(attempt_ids),
        "limit": len(attempt_ids),
        "worker_id": worker_id,
        "lease": lease,
        "child": child,
        "suspects": suspects,
        "alone": alone.value,
    }
    rows = run("outbox/claim", params, using=using)
    place = {attempt_id: number for number, attempt_id in enumerate(attempt_ids)}
    return [_claimed(row) for row in sorted(rows, key=lambda row: place[row["attempt_id"]])]


def _claimed(row: Row) -> ClaimedDelivery:
    texts = ("type", "source", "subject", "tenant", "dataref", "ordering_key", "correlation_id", "causation_id")
    event = Event(
        id=row["event_id"],
        version=row["version"],
        data_text=row["data"],
        created_at=row["event_created_at"],
        key_seq=row["key_seq"],
        traceparent=row["traceparent"],
        **{name: row[name] for name in texts},
    )
    return ClaimedDelivery(
        delivery_id=row["id"],
        attempt_id=row["attempt_id"],
        number=row["fence"],
        destination=row["destination"],
        redispatch=row["redispatch"],
        failed_count=row["failed_count"],
        lost_count=row["lost_count"],
        event=event,
    )


def row_params(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Spell rows as parameters of a statement: as they are for SQLite, and as a list per column for PostgreSQL."""
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return {"rows": rows, **{name: list(values) for name, values in columns}}


def mark_published(found: Sequence[tuple[ClaimedDelivery, Confirmed]], *, using: str) -> set[uuid.UUID]:
    """Record confirmations, and let the next delivery of each ordering key go; returns the deliveries it marked.

    One that is missing belongs to somebody else by now: its attempt is on record as confirmed, nothing else changed.
    """
    if not found:
        return set()
    rows = [
        (item.delivery_id, item.attempt_id, plain(report.receipt, RECEIPT_LIMIT), report.status)
        for item, report in found
    ]
    params = row_params(("ids", "attempt_ids", "receipts", "statuses"), rows)
    marked = {row["id"] for row in run("outbox/mark", params, using=using)}
    for item, _ in found:
        _tell_marked("delivery.publish" if item.delivery_id in marked else "delivery.refused", item)
    return marked


def hold_own(found: Sequence[ClaimedDelivery], *, using: str) -> list[ClaimedDelivery]:
    """Lock deliveries, and return those that these attempts may still mark; inside a transaction of the caller's.

    For what only happens together with its mark: an attempt that came too late has delivered nothing then, and must not
    be recorded as if it had.
    """
    rows = Delivery.objects.using(using).filter(pk__in=[item.delivery_id for item in found]).order_by("pk")
    held = {row.pk: row for row in rows.select_for_update(no_key=True)}
    own = []
    for item in found:
        row = held.get(item.delivery_id)
        if row is not None and (
            (row.state == DeliveryState.CLAIMED and row.attempt_id == item.attempt_id)
            or (row.state == DeliveryState.PENDING and row.fence == item.number)
        ):
            own.append(item)
        else:
            _tell_marked("delivery.refused", item)
    return own


def _tell_marked(event: str, item: ClaimedDelivery) -> None:
    telemetry.emit(
        event,
        delivery_id=item.delivery_id,
        destination=item.destination,
        event_type=item.event.type,
        number=item.number,
        delay=None if item.redispatch else clock.now() - item.event.created_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How one attempt ended that delivered nothing."""

    claimed: ClaimedDelivery
    following: Following
    detail: str = ""
    status: int | None = None


def settle(found: Sequence[Settlement], *, using: str) -> set[uuid.UUID]:
    """Record attempts that delivered nothing; returns the deliveries that still belonged to them."""
    if not found:
        return set()
    rows = [
        (
            item.claimed.delivery_id,
            item.claimed.attempt_id,
            item.following.outcome.value,
            item.following.state.value,
            item.following.failed_count,
            item.following.delay.total_seconds(),
            item.status,
            plain(item.detail, DETAIL_LIMIT),
            item.following.dead_reason,
            item.following.lost_count,
        )
        for item in found
    ]
    names = ("ids", "attempt_ids", "outcomes", "states", "failed", "delays", "statuses", "details", "reasons", "lost")
    params = row_params(names, rows)
    settled = {row["id"] for row in run("outbox/settle", params, using=using)}
    for item in found:
        telemetry.emit(
            "delivery.settle",
            delivery_id=item.claimed.delivery_id,
            destination=item.claimed.destination,
            event_type=item.claimed.event.type,
            outcome=item.following.outcome.value,
            state=item.following.state.value,
            refused=item.claimed.delivery_id not in settled,
        )
    return settled


def plain(text: str, limit: int) -> str:
    """Return what every database stores of a text from outside."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:limit]


def sweep(destination: str, *, after: str, limit: int, using: str) -> tuple[str, int]:
    """Let waiting heads of up to so many ordering keys go, behind the key ``after``.

    Returns:
        The key to go on behind (empty: all were seen), and how many deliveries it let go.
    """
    (row,) = run("outbox/sweep", {"destination": destination, "after": after, "limit": limit}, using=using)
    if row["promoted"]:
        telemetry.emit("delivery.swept", destination=destination, count=row["promoted"])
    return row["last_key"] or "", row["promoted"]


@contextmanager
def one_delivery_transaction(using: str) -> Iterator[None]:
    """Open a transaction of the dispatcher's own, which reads what is committed whatever the project's default is."""
    connection = connections[using]
    with transaction.atomic(using=using):
        if connection.vendor == "postgresql" and len(connection.atomic_blocks) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute(NOT_IDLE, [str(IDLE)])
        yield
