"""Deliveries that a person asked for: outside the order of their key, each with a number of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django.db.models import Max

from django_jobs import telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import DeliveryState
from django_jobs.models import Delivery, OutboxEvent
from django_jobs.store.notify import EVENTS, wake
from django_jobs.store.statements import run
from django_jobs.store.times import read_now


def send_again(event: OutboxEvent, destinations: Iterable[str], *, using: str) -> list[Delivery]:
    """Insert one delivery of an event per destination, due now, under the next redispatch number of each.

    The earlier ones stay as they are. It does not wait for other events of its ordering key, and none waits for it.
    """
    made = []
    for destination in sorted(set(destinations)):
        earlier = Delivery.objects.using(using).filter(event_id=event.pk, destination=destination)
        last = earlier.aggregate(last=Max("redispatch"))["last"]
        now = read_now(using)
        row = Delivery.objects.using(using).create(
            id=uuid7(),
            event_id=event.pk,
            destination=destination,
            redispatch=(last or 0) + 1,
            ordering_key=event.ordering_key,
            key_seq=event.key_seq,
            state=DeliveryState.PENDING,
            available_at=now,
            created_at=now,
        )
        wake([EVENTS], using=using)
        telemetry.emit("delivery.redispatch", delivery_id=row.pk, event_id=event.pk, destination=destination)
        made.append(row)
    return made


def discard_delivery(delivery_id: uuid.UUID, *, revision: int, using: str) -> bool:
    """Settle a delivery that is dead, or was tried in vain, as not to be delivered; the next of its ordering key goes.

    Returns:
        False when it may not be discarded any more, or was changed since that revision.
    """
    rows = run("outbox/discard", {"delivery_id": delivery_id, "revision": revision}, using=using)
    if rows:
        wake([EVENTS], using=using)
        telemetry.emit("delivery.discard", delivery_id=delivery_id)
    return bool(rows)
