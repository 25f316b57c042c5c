"""Discarding a delivery that is dead, or that was tried in vain: a person says that the destination does not get it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.domain.states import DeliveryState
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Delivery
from django_jobs.operate.action import Acknowledgement, Plan
from django_jobs.operate.delivery_decision import DeliveryDecision
from django_jobs.operate.delivery_lookup import behind_text, has_arrived, held_back_by, unanswered_text
from django_jobs.operate.wording import counted
from django_jobs.store.redispatching import discard_delivery

_NEVER = Acknowledgement(name="never", label="The destination does not get this event, unless it is dispatched again.")


def discard_refused(delivery: Delivery) -> str:
    """Return why a delivery cannot be discarded now; empty: it can."""
    state = delivery.state
    if state == DeliveryState.CLAIMED:
        return "It is being delivered right now; try again when this attempt has ended."
    if state == DeliveryState.PENDING and not delivery.fence:
        return "It was not tried yet; only a delivery that is dead or was tried in vain can be discarded."
    if state in {DeliveryState.DEAD_LETTERED, DeliveryState.PENDING}:
        return ""
    return f"It is {state}; only a delivery that is dead or was tried in vain can be discarded."


class DiscardDelivery(DeliveryDecision):
    """Settle a delivery that is dead, or was tried in vain, as not to be delivered; what waits behind it goes on."""

    name = "discard_delivery"

    def hold(self) -> None:
        """Lock the delivery."""
        rows = Delivery.objects.using(self.using).filter(pk=self.delivery_id)
        list(rows.select_for_update(no_key=True).values_list("pk"))

    def plan(self) -> Plan:
        """Say what would not be delivered, and what goes on then; reads only.

        Raises:
            DeliveryNotFoundError: There is no such delivery.
        """
        delivery = self.delivery()
        refused = discard_refused(delivery)
        facts: dict[str, Any] = {
            "delivery": str(delivery.pk),
            "event": str(delivery.event_id),
            "destination": delivery.destination,
            "state": delivery.state,
            "arrived": has_arrived([delivery.pk], using=self.using),
        }
        if delivery.state != DeliveryState.PENDING:
            # A delivery that is tried again and again changes while somebody reads, and the same is said of it.
            facts["revision"] = delivery.revision
        return Plan(
            action=self.name,
            title=f"Discard the delivery of event {delivery.event_id} to {delivery.destination}",
            refused=refused,
            facts=facts,
            lines=() if refused else tuple(self._lines(delivery, arrived=facts["arrived"])),
            acknowledge=() if refused else (_NEVER,),
        )

    def _lines(self, delivery: Delivery, *, arrived: bool) -> Iterator[str]:
        if delivery.state == DeliveryState.PENDING:
            success = "" if arrived else " without success"
            yield f"It was tried {counted(delivery.fence, 'time')}{success}, and would be tried again."
        if arrived:
            yield "It has arrived: one of its attempts was confirmed, too late to count as published."
        elif unanswered := unanswered_text([delivery.pk], using=self.using):
            yield unanswered
        behind = held_back_by(delivery, using=self.using)
        if behind:
            yield f"Then {behind_text(behind)} may go, one after the other."

    def change(self) -> tuple[str, Mapping[str, Any]]:
        """Discard it, and let the next of its key go.

        Raises:
            ActionChangedError: It may not be discarded any more.
        """
        delivery = self.delivery()
        if not discard_delivery(delivery.pk, revision=delivery.revision, using=self.using):
            msg = "This delivery changed since you looked; nothing was done."
            raise ActionChangedError(msg)
        return f"Discarded the delivery of event {delivery.event_id} to {delivery.destination}.", {}
