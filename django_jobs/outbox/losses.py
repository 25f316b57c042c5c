"""Judging lost deliveries: what follows when whoever held them is gone, and who is told."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence

from django_jobs import telemetry
from django_jobs.domain.deliveries import after_loss
from django_jobs.domain.lines import one_line
from django_jobs.domain.states import Alone, DeliveryState, LossCause
from django_jobs.outbox.destinations import is_local, subscriber_of
from django_jobs.store.lost_deliveries import (
    LostDelivery,
    Verdict,
    deliveries_held_by,
    deliveries_of_silent,
    expired_deliveries,
    take_back_deliveries,
)

logger = logging.getLogger("django_jobs.outbox")

AT_ONCE = 500

_COMPANY = {
    Alone.NO: "beside others",
    Alone.CHILD: "alone in its process",
    Alone.WORKER: "alone on its worker",
}


def take_back_of_dead(*, worker_id: uuid.UUID, child: int, how: str, on_purpose: bool, using: str) -> bool:
    """Take back what the dispatcher of a dead process held; False when some of it is locked and must be tried again."""
    found = deliveries_held_by(worker_id=worker_id, child=child, using=using, on_purpose=on_purpose)
    return len(_take_back(found, how, using)) == len(found)


def take_back_of_silent(*, how: str, using: str) -> int:
    """Take back what silent workers held; for whoever may judge them. Returns how many."""
    return len(_take_back(deliveries_of_silent(limit=AT_ONCE, using=using), how, using))


def take_back_expired(*, using: str) -> int:
    """Take back what is held longer than its lease, and held against nobody; returns how many."""
    found = expired_deliveries(limit=AT_ONCE, using=using)
    return len(_take_back(found, "its lease was over and no answer was recorded", using))


def _take_back(found: Sequence[LostDelivery], how: str, using: str) -> set[uuid.UUID]:
    verdicts = [judge(lost, how=how) for lost in found]
    taken = take_back_deliveries(verdicts, using=using)
    for verdict in verdicts:
        if verdict.lost.delivery_id in taken and verdict.lost.cause is not LossCause.EXPIRED:
            _tell(verdict)
    return taken


def judge(lost: LostDelivery, *, how: str) -> Verdict:
    """Decide what follows the loss of one attempt; ``how`` says in plain English what proved it."""
    following = after_loss(
        lost.cause,
        alone=lost.alone,
        failed_count=lost.failed_count,
        lost_count=lost.lost_count,
        stopping=lost.stopping,
    )
    detail = f"Never observed, and it may have arrived: {how}. It was delivered {_COMPANY[lost.alone]}."
    if following.state is DeliveryState.DEAD_LETTERED:
        detail += f" {following.lost_count} attempts in a row were lost with their process, so the delivery is dead."
    return Verdict(lost=lost, following=following, detail=detail)


def _tell(verdict: Verdict) -> None:
    lost = verdict.lost
    logger.warning("Attempt %s to deliver %s was lost: %s", lost.number, lost.delivery_id, verdict.detail)
    if verdict.following.state is DeliveryState.DEAD_LETTERED:
        tell_of_dead(
            delivery_id=lost.delivery_id,
            event_id=lost.event_id,
            destination=lost.destination,
            reason=verdict.following.dead_reason,
            message=verdict.detail,
        )


def tell_of_dead(*, delivery_id: uuid.UUID, event_id: uuid.UUID, destination: str, reason: str, message: str) -> None:
    """Tell the log and the owner that a delivery is dead."""
    definition = subscriber_of(destination) if is_local(destination) else None
    logger.error("The delivery of event %s to %s is dead (%s): %s", event_id, destination, reason, one_line(message))
    telemetry.emit(
        "owner.alert",
        reason=f"dead delivery: {reason}",
        delivery_id=delivery_id,
        event_id=event_id,
        destination=destination,
        owner=definition.options.owner if definition else "",
        message=message,
    )
