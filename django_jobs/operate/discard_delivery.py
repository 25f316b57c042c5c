"""Discarding a dead delivery: a person says that the destination does not get this event."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django_jobs.domain.states import DeliveryState
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Delivery
from django_jobs.operate.action import Acknowledgement, Operator, Plan
from django_jobs.operate.delivery_decision import DeliveryDecision
from django_jobs.operate.delivery_lookup import behind_text, held_back_by
from django_jobs.store.redispatching import discard_delivery


class DiscardDelivery(DeliveryDecision):
    """Settle one dead delivery as not to be delivered; what waits behind it goes on."""

    name = "discard_delivery"

    def lock(self) -> None:
        """Lock the delivery."""
        rows = Delivery.objects.using(self.using).filter(pk=self.delivery_id)
        list(rows.select_for_update(no_key=True).values_list("pk"))

    def plan(self) -> Plan:
        """Say what would not be delivered, and what goes on then; reads only.

        Raises:
            DeliveryNotFoundError: There is no such delivery.
        """
        delivery = self.delivery()
        dead = delivery.state == DeliveryState.DEAD_LETTERED
        behind = held_back_by(delivery, using=self.using) if dead else 0
        return Plan(
            action=self.name,
            title=f"Discard the delivery of event {delivery.event_id} to {delivery.destination}",
            refused="" if dead else f"It is {delivery.state}; only a dead delivery can be discarded.",
            facts={
                "delivery": str(delivery.pk),
                "event": str(delivery.event_id),
                "destination": delivery.destination,
                "state": delivery.state,
                "revision": delivery.revision,
            },
            lines=(f"Then {behind_text(behind)} may go, one after the other.",) if behind else (),
            acknowledge=(_NEVER,) if dead else (),
        )

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Discard it, and let the next of its key go.

        Raises:
            ActionChangedError: It is not dead any more.
        """
        delivery = self.delivery()
        if not discard_delivery(delivery.pk, revision=delivery.revision, using=self.using):
            msg = "This delivery changed since you looked; nothing was done."
            raise ActionChangedError(msg)
        return f"Discarded the delivery of event {delivery.event_id} to {delivery.destination}.", {}


_NEVER = Acknowledgement(name="never", label="The destination does not get this event, unless it is dispatched again.")
