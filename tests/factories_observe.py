"""Rows of the outbox for tests of gauges, a trait per state of the delivery."""

from __future__ import annotations

import uuid

import factory
from factory.django import DjangoModelFactory

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Delivery
from tests.factories import at


class ObservedDeliveryFactory(DjangoModelFactory):
    """An event on its way to one destination, due now; without its event, which no gauge reads."""

    class Meta:
        model = Delivery

    class Params:
        now = factory.LazyFunction(clock.now)
        waiting = factory.Trait(state="waiting", available_at=None, ordering_key="order:1", key_seq=2)
        claimed = factory.Trait(
            state="claimed",
            available_at=None,
            attempt_id=factory.LazyFunction(uuid.uuid4),
            lease_owner=factory.LazyFunction(uuid7),
            lease_expires_at=at(minutes=-1),
        )
        published = factory.Trait(state="published", available_at=None, published_at=at(seconds=1))
        dead_lettered = factory.Trait(
            state="dead_lettered", available_at=None, dead_at=at(seconds=1), dead_reason="attempts"
        )

    id = factory.LazyFunction(uuid7)
    event_id = factory.LazyFunction(uuid7)
    destination = "partner"
    state = "pending"
    created_at = at(minutes=1)
    available_at = at(minutes=1)
