"""Dispatching an event again to a destination: a new delivery, outside the order of its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.domain.states import DeliveryState
from django_jobs.models import Delivery, OutboxEvent
from django_jobs.operate.action import Acknowledgement, Plan
from django_jobs.operate.delivery_decision import DeliveryDecision
from django_jobs.operate.delivery_lookup import behind_text, find_event, has_arrived, held_back_by, unanswered_text
from django_jobs.store.redispatching import send_again

_ON_ITS_WAY = (DeliveryState.WAITING, DeliveryState.PENDING, DeliveryState.CLAIMED)


class Redispatch(DeliveryDecision):
    """Dispatch the event of one settled or dead delivery again, to the same destination."""

    name = "redispatch"

    def hold(self) -> None:
        """Lock the event, so that two redispatches follow each other, then its deliveries."""
        delivery = self.delivery()
        events = OutboxEvent.objects.using(self.using).filter(pk=delivery.event_id)
        list(events.select_for_update(no_key=True).values_list("pk"))
        list(self._all(delivery).order_by("id").select_for_update(no_key=True).values_list("pk"))

    def _all(self, delivery: Delivery) -> Any:
        return Delivery.objects.using(self.using).filter(event_id=delivery.event_id, destination=delivery.destination)

    def plan(self) -> Plan:
        """Say what would be sent again; reads only.

        Raises:
            DeliveryNotFoundError: There is no such delivery, or its event is gone.
        """
        delivery = self.delivery()
        event = find_event(delivery.event_id, using=self.using)
        rows = list(self._all(delivery).order_by("redispatch"))
        refused = _refused(rows)
        arrived = any(row.state == DeliveryState.PUBLISHED for row in rows)
        arrived = arrived or has_arrived([row.pk for row in rows], using=self.using)
        return Plan(
            action=self.name,
            title=f"Dispatch event {event.pk} ({event.type} v{event.version}) to {delivery.destination} again",
            refused=refused,
            facts={
                "event": str(event.pk),
                "destination": delivery.destination,
                "deliveries": [[str(row.pk), row.redispatch, row.state, row.revision] for row in rows],
                "arrived": arrived,
            },
            lines=() if refused else tuple(self._lines(rows, arrived=arrived)),
            acknowledge=(_TWICE,) if arrived and not refused else (),
        )

    def _lines(self, rows: list[Delivery], *, arrived: bool) -> Iterator[str]:
        yield "It goes out at once, whatever else waits for its ordering key; consumers see the same event id."
        if not arrived and (unanswered := unanswered_text([row.pk for row in rows], using=self.using)):
            yield unanswered
        dead = [row for row in rows if row.state == DeliveryState.DEAD_LETTERED]
        for row in dead:
            behind = held_back_by(row, using=self.using)
            stays = f"The dead delivery {row.pk} stays as it is"
            yield (
                f"{stays} and holds back {behind_text(behind)}: discard it when this one has arrived."
                if behind
                else (f"{stays}; discard it when this one has arrived.")
            )

    def change(self) -> tuple[str, Mapping[str, Any]]:
        """Insert the new delivery."""
        delivery = self.delivery()
        event = find_event(delivery.event_id, using=self.using)
        (made,) = send_again(event, [delivery.destination], using=self.using)
        said = (
            f"Event {event.pk} goes to {made.destination} again, as delivery {made.pk} (redispatch {made.redispatch})."
        )
        return said, {"delivery": str(made.pk), "redispatch": made.redispatch}


_TWICE = Acknowledgement(
    name="again", label="It arrived before: a consumer that does not look at event ids does its work twice."
)


def _refused(rows: list[Delivery]) -> str:
    on_its_way = [row for row in rows if row.state in _ON_ITS_WAY]
    if on_its_way:
        return f"It is on its way there already (delivery {on_its_way[0].pk} is {on_its_way[0].state})."
    return ""
