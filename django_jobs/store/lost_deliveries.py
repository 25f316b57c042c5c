"""Lost deliveries: find those whose holder is gone, and take them back by their attempt id."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.deliveries import Following
from django_jobs.domain.states import Alone, LossCause
from django_jobs.models import Delivery, DeliveryAttempt, Worker
from django_jobs.store.deliveries import DETAIL_LIMIT, plain, row_params
from django_jobs.store.losses import asked_to_stop
from django_jobs.store.statements import run
from django_jobs.store.times import read_now

_HELD = ("claimed", "dead_lettered")  # the condition of the index, for planners that do not see it in the state


@dataclass(frozen=True, slots=True, kw_only=True)
class LostDelivery:
    """A claimed delivery whose holder seems gone, with all that a verdict needs."""

    delivery_id: uuid.UUID
    attempt_id: uuid.UUID
    event_id: uuid.UUID
    destination: str
    number: int
    failed_count: int
    lost_count: int
    alone: Alone
    cause: LossCause
    stopping: bool  # its worker had been asked to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows the loss of one attempt."""

    lost: LostDelivery
    following: Following
    detail: str


def deliveries_held_by(*, worker_id: uuid.UUID, child: int, using: str, on_purpose: bool = False) -> list[LostDelivery]:
    """Return what the dispatcher of one child held whose death was seen; ``on_purpose``: its worker had ended it."""
    rows = _held(using).filter(lease_owner=worker_id, lease_child=child)
    return _with_attempts(rows, LossCause.ENDED if on_purpose else LossCause.EXIT, using)


def deliveries_of_silent(*, limit: int, using: str) -> list[LostDelivery]:
    """Return what silent workers hold, after the end of its lease: until then a frozen one may go on."""
    return _with_attempts(_over(using).filter(_of_silent(using))[:limit], LossCause.SILENT, using)


def expired_deliveries(*, limit: int, using: str) -> list[LostDelivery]:
    """Return what is claimed although its lease is over and its worker lives, or has stopped, or is not known."""
    return _with_attempts(_over(using).filter(~_of_silent(using))[:limit], LossCause.EXPIRED, using)


def _held(using: str) -> Any:
    return Delivery.objects.using(using).filter(state__in=_HELD).filter(state="claimed")


def _over(using: str) -> Any:
    return _held(using).filter(lease_expires_at__lte=read_now(using)).order_by("id")


def _of_silent(using: str) -> Exists:
    before = read_now(using) - get_settings().silent_after
    silent = Worker.objects.using(using).filter(stopped_at__isnull=True, heartbeat_at__lte=before)
    return Exists(silent.filter(pk=OuterRef("lease_owner")))


def _with_attempts(rows: Iterable[Delivery], cause: LossCause, using: str) -> list[LostDelivery]:
    found = [(row, row.attempt_id) for row in rows if row.attempt_id is not None]
    if not found:
        return []
    attempts = DeliveryAttempt.objects.using(using).in_bulk([attempt_id for _, attempt_id in found])
    stopping = asked_to_stop((row.lease_owner for row, _ in found), using=using)
    return [
        LostDelivery(
            delivery_id=row.pk,
            attempt_id=attempt_id,
            event_id=row.event_id,
            destination=row.destination,
            number=row.fence,
            failed_count=row.failed_count,
            lost_count=row.lost_count,
            alone=Alone(attempts[attempt_id].alone) if attempt_id in attempts else Alone.NO,
            cause=cause,
            stopping=row.lease_owner in stopping,
        )
        for row, attempt_id in found
    ]


def take_back_deliveries(found: Sequence[Verdict], *, using: str) -> set[uuid.UUID]:
    """Take deliveries back; returns those that were: the rest is locked by somebody, or moved on."""
    if not found:
        return set()
    rows = [
        (
            item.lost.delivery_id,
            item.lost.attempt_id,
            item.following.state.value,
            item.following.lost_count,
            item.following.delay.total_seconds(),
            item.following.dead_reason,
            plain(item.detail, DETAIL_LIMIT),
        )
        for item in found
    ]
    names = ("ids", "attempt_ids", "states", "lost", "delays", "reasons", "details")
    params = row_params(names, rows)
    taken = {row["id"] for row in run("outbox/take_back", params, using=using)}
    for item in found:
        if item.lost.delivery_id in taken:
            telemetry.emit(
                "delivery.lost",
                delivery_id=item.lost.delivery_id,
                destination=item.lost.destination,
                cause=item.lost.cause.value,
                state=item.following.state.value,
            )
    return taken
