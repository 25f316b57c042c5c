"""What decisions about one delivery share: whose right they are, and the row as the audit names it."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from django_jobs import faults
from django_jobs.models import Delivery
from django_jobs.operate.action import Decision, Operator, Target
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

    @abstractmethod
    def hold(self) -> None:
        """Lock the rows that the plan depends on."""

    @abstractmethod
    def change(self) -> tuple[str, Mapping[str, Any]]:
        """Carry it out inside the open transaction; returns what is said about it, and details.

        Raises:
            ActionChangedError: A guarded statement changed no row.
        """

    def lock(self) -> None:
        """Lock the rows that the plan depends on."""
        self.hold()
        faults.reached("redispatch.after_lock", using=self.using)

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Carry it out inside the open transaction."""
        told = self.change()
        faults.reached("redispatch.after_write", using=self.using)
        transaction.on_commit(lambda: faults.reached("redispatch.after_commit", using=self.using), using=self.using)
        return told

    def target(self) -> Target:
        """Return the delivery as it is before the decision."""
        delivery = self.delivery()
        return Target(
            event_id=delivery.event_id,
            delivery_id=delivery.pk,
            from_state=delivery.state,
            from_revision=delivery.revision,
        )
