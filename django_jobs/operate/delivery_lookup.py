"""Finding a delivery and its event, and counting what a dead one holds back."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from django_jobs.domain.states import DeliveryOutcome, DeliveryState
from django_jobs.models import Delivery, DeliveryAttempt, OutboxEvent

UNFINISHED = (DeliveryState.WAITING, DeliveryState.PENDING, DeliveryState.CLAIMED, DeliveryState.DEAD_LETTERED)
_UNANSWERED = (DeliveryOutcome.TIMEOUT, DeliveryOutcome.LOST)
COUNTED = 1000  # what waits behind a delivery is counted no further


class DeliveryNotFoundError(LookupError):
    """There is no such delivery, or no such event."""


def find_delivery(delivery_id: uuid.UUID, *, using: str) -> Delivery:
    """Return a delivery.

    Raises:
        DeliveryNotFoundError: There is none.
    """
    row = Delivery.objects.using(using).filter(pk=delivery_id).first()
    if row is None:
        msg = f"There is no delivery {delivery_id} in database {using!r}."
        raise DeliveryNotFoundError(msg)
    return row


def find_event(event_id: uuid.UUID, *, using: str) -> OutboxEvent:
    """Return an event.

    Raises:
        DeliveryNotFoundError: There is none.
    """
    row = OutboxEvent.objects.using(using).filter(pk=event_id).first()
    if row is None:
        msg = f"There is no event {event_id} in database {using!r}; it may have been pruned."
        raise DeliveryNotFoundError(msg)
    return row


def held_back_by(delivery: Delivery, *, using: str) -> int:
    """Count the deliveries that wait behind this one, at most ``COUNTED``."""
    if not delivery.ordering_key or delivery.redispatch:
        return 0
    behind = Delivery.objects.using(using).filter(
        destination=delivery.destination,
        ordering_key=delivery.ordering_key,
        redispatch=0,
        key_seq__gt=delivery.key_seq,
        state__in=UNFINISHED,
    )
    return behind.order_by("key_seq")[:COUNTED].count()


def behind_text(count: int) -> str:
    """Say how many events wait behind a delivery."""
    many = f"{COUNTED} or more" if count >= COUNTED else str(count)
    return f"{many} later event{'' if count == 1 else 's'} of its ordering key"


def has_arrived(delivery_ids: Collection[uuid.UUID], *, using: str) -> bool:
    """Say whether an attempt of these deliveries was confirmed, also one whose answer came too late to count."""
    attempts = DeliveryAttempt.objects.using(using).filter(delivery_id__in=delivery_ids)
    return attempts.filter(outcome=DeliveryOutcome.CONFIRMED).exists()


def unanswered_text(delivery_ids: Collection[uuid.UUID], *, using: str) -> str:
    """Say that something may have arrived, because attempts got no answer; empty when each of them got one."""
    attempts = DeliveryAttempt.objects.using(using).filter(delivery_id__in=delivery_ids)
    many = attempts.filter(outcome__in=_UNANSWERED).count()
    return f"It may have arrived: {many} of its attempts got no answer." if many else ""
