"""Giving events a route that had none when they were published."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from django_jobs.define.events import check_event_name
from django_jobs.domain.identity import fingerprint
from django_jobs.models import Delivery, OutboxEvent
from django_jobs.operate.action import Acknowledgement, Decision, Operator, Plan, Target
from django_jobs.store.redispatching import send_again
from django_jobs.store.subscriptions import active_destinations

AT_ONCE = 1000


class Reroute(Decision):
    """Send events of one type and version, which went nowhere, to what is subscribed to them now.

    Args:
        event_type: The type.
        version: Its version.
        using: The database.
        limit: How many events at most, oldest first.

    Raises:
        DefinitionError: The version is none.
        KeyFormatError: The type is empty, too long or not printable ASCII.
    """

    name = "reroute"
    permission = "redispatch_outboxevent"

    def __init__(self, event_type: str, *, version: int = 1, using: str, limit: int = AT_ONCE) -> None:
        super().__init__(using=using)
        check_event_name(event_type, version)
        self.event_type, self.version, self.limit = event_type, version, min(limit, AT_ONCE)

    def _events(self) -> QuerySet[OutboxEvent]:
        sent = Delivery.objects.using(self.using).filter(event_id=OuterRef("pk"))
        found = OutboxEvent.objects.using(self.using).filter(
            ~Exists(sent), type=self.event_type, version=self.version, routed_count=0
        )
        return found.order_by("id")[: self.limit]

    def lock(self) -> None:
        """Lock the events, so that two reroutes follow each other."""
        rows = OutboxEvent.objects.using(self.using).filter(pk__in=[row.pk for row in self._events()])
        list(rows.order_by("id").select_for_update(no_key=True).values_list("pk"))

    def plan(self) -> Plan:
        """Say which events would go where; reads only."""
        ids = [str(pk) for pk in self._events().values_list("pk", flat=True)]
        destinations = active_destinations(self.event_type, self.version, using=self.using)
        refused = ""
        if not destinations:
            refused = "Nothing is subscribed to these events; declare a subscription and sync it first."
        elif not ids:
            refused = "No event of this type and version is without a route."
        return Plan(
            action=self.name,
            title=f"Send unrouted events {self.event_type} v{self.version} to {', '.join(destinations) or '-'}",
            refused=refused,
            facts={
                "type": self.event_type,
                "version": self.version,
                "destinations": destinations,
                "events": len(ids),
                "ids": fingerprint(",".join(ids)),
            },
            lines=() if refused else tuple(_lines(ids, self.limit)),
            acknowledge=() if refused else (_LATE,),
        )

    def target(self) -> Target:
        """Return nothing: the plan has the events."""
        return Target()

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Insert the deliveries."""
        destinations = active_destinations(self.event_type, self.version, using=self.using)
        many = 0
        for event in list(self._events()):
            many += len(send_again(event, destinations, using=self.using))
        return f"Made {many} deliver{'y' if many == 1 else 'ies'}, to {', '.join(destinations)}.", {"deliveries": many}


_LATE = Acknowledgement(
    name="late", label="They arrive late and in any order, also those of one ordering key; consumers can bear that."
)


def _lines(ids: list[str], limit: int) -> Iterator[str]:
    yield f"{len(ids)} event{'' if len(ids) == 1 else 's'}, from {ids[0]} to {ids[-1]}."
    if len(ids) == limit:
        yield f"That is as many as are taken at once; repeat it for the rest (at most {limit} each time)."
