"""Events, subscriptions and deliveries for tests, one trait per state; a delivery brings the attempts that its state needs.

Written directly, past the store. Times derive from ``now`` as in :mod:`tests.factories`.
"""

from __future__ import annotations

import uuid
from typing import Any

import factory
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import uuid7
from django_jobs.models import Delivery, DeliveryAttempt, Destination, OrderingKey, OutboxEvent, Subscription
from tests.factories import at

EVENT_TYPE = "tests.order.paid"
DATA = '{"order_id":7}'


class OutboxEventFactory(DjangoModelFactory):
    """An event without an order and without a route; ``ordered`` is the first of its key."""

    class Meta:
        model = OutboxEvent

    class Params:
        now = factory.LazyFunction(clock.now)
        ordered = factory.Trait(ordering_key="order:1", key_seq=1)

    id = factory.LazyFunction(uuid7)
    type = EVENT_TYPE
    version = 1
    source = "urn:django:testproject"
    data = DATA
    data_digest = fingerprint(DATA)
    created_at = at(minutes=1)


class OrderingKeyFactory(DjangoModelFactory):
    """A key under which one event was published."""

    class Meta:
        model = OrderingKey

    ordering_key = "order:1"
    last_seq = 1


class SubscriptionFactory(DjangoModelFactory):
    """Events of the default type go to ``crm``; ``ended``: no longer."""

    class Meta:
        model = Subscription

    class Params:
        now = factory.LazyFunction(clock.now)
        ended = factory.Trait(ended_at=at(seconds=1))

    id = factory.LazyFunction(uuid7)
    event_type = EVENT_TYPE
    version = 1
    destination = "crm"
    active_from = at(hours=1)
    created_at = at(hours=1)


class DestinationFactory(DjangoModelFactory):
    """A destination that answers; ``down`` has failed three times and is left alone for a while."""

    class Meta:
        model = Destination

    class Params:
        now = factory.LazyFunction(clock.now)
        down = factory.Trait(failures=3, open_until=at(seconds=-4), last_error="connection refused")

    name = "crm"
    changed_at = at(seconds=1)


class DeliveryFactory(DjangoModelFactory):
    """A delivery to ``crm`` of an event of its own, in the state of a trait; ``pending`` without one."""

    class Meta:
        model = Delivery
        skip_postgeneration_save = True

    class Params:
        now = factory.LazyFunction(clock.now)
        tried = factory.Trait(fence=1)
        pending = factory.Trait(state="pending")
        waiting = factory.Trait(state="waiting", available_at=None)
        claimed = factory.Trait(
            tried=True,
            state="claimed",
            available_at=None,
            attempt_id=factory.LazyFunction(uuid.uuid4),
            lease_owner=factory.LazyFunction(uuid7),
            lease_expires_at=at(seconds=-30),
        )
        published = factory.Trait(
            tried=True, state="published", available_at=None, published_at=at(seconds=5), receipt="got it"
        )
        dead_lettered = factory.Trait(
            fence=5,
            state="dead_lettered",
            available_at=None,
            failed_count=5,
            dead_at=at(seconds=5),
            dead_reason="nacked",
            last_error="too large",
        )
        discarded = factory.Trait(fence=5, state="discarded", available_at=None, failed_count=5, last_error="too large")

    id = factory.LazyFunction(uuid7)
    event = factory.SubFactory(OutboxEventFactory, routed_count=1)
    destination = "crm"
    ordering_key = factory.SelfAttribute("event.ordering_key")
    key_seq = factory.SelfAttribute("event.key_seq")
    state = "pending"
    available_at = at(seconds=1)
    created_at = at(minutes=1)

    @factory.post_generation
    def attempts(delivery: Delivery, create: bool, extracted: Any, **values: Any) -> None:  # noqa: N805
        """Store the attempts that the state needs; ``attempts=False`` stores none."""
        if not create or extracted is False:
            return
        for number in range(1, delivery.fence + 1):
            last = number == delivery.fence
            outcome: str | None = {"claimed": None, "published": "confirmed"}.get(delivery.state, "nacked")
            ids = {"id": delivery.attempt_id, "worker_id": delivery.lease_owner} if delivery.attempt_id and last else {}
            DeliveryAttemptFactory(
                delivery=delivery, number=number, outcome=outcome if last else "nacked", **{**values, **ids}
            )


class DeliveryAttemptFactory(DjangoModelFactory):
    """A closed attempt that was confirmed; ``outcome=None`` is open."""

    class Meta:
        model = DeliveryAttempt

    class Params:
        now = factory.LazyFunction(clock.now)

    id = factory.LazyFunction(uuid.uuid4)
    delivery = factory.SubFactory(DeliveryFactory)
    number = 1
    worker_id = factory.LazyFunction(uuid7)
    started_at = at(seconds=10)
    outcome: Any = "confirmed"
    finished_at = factory.LazyAttribute(lambda row: None if row.outcome is None else row.started_at)
