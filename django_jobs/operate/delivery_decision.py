"""What decisions about one delivery share: whose right they are, and the row as the audit names it."""

from __future__ import annotations

import uuid

from django_jobs.models import Delivery
from django_jobs.operate.action import Decision, Target
from django_jobs.operate.delivery_lookup import find_delivery


class DeliveryDecision(Decision):
    """A decision about one delivery.

    Args:
        delivery_id: The delivery.
        using: The database.
    """

    permission = "redispatch_outboxevent"

    def __init__(self, delivery_id: uuid.UUID, *, using: str) -> None:
        super().__init__(using=using)
        self.delivery_id = delivery_id

    def delivery(self) -> Delivery:
        """Read the delivery as it is now.

        Raises:
            DeliveryNotFoundError: There is none.
        """
        return find_delivery(self.delivery_id, using=self.using)

    def target(self) -> Target:
        """Return the delivery as it is before the decision."""
        delivery = self.delivery()
        return Target(
            event_id=delivery.event_id,
            delivery_id=delivery.pk,
            from_state=delivery.state,
            from_revision=delivery.revision,
        )
