"""Corruptions of events and deliveries; each returns the ids that the invariant must name."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import models

from django_jobs.domain.identity import fingerprint
from django_jobs.models import Delivery, DeliveryAttempt, JobStep, OperatorAction, OutboxEvent, PrunedOrder
from tests.factories_outbox import DeliveryAttemptFactory, DeliveryFactory, OrderingKeyFactory, OutboxEventFactory
from tests.integration.operate.corruptions import corrupts, unguard
from tests.integration.operate.stories import Story


def healthy_events() -> None:
    """Tell of events and deliveries in every state, of orders, of jobs that published, and of decisions."""
    for trait in ("pending", "claimed", "published", "dead_lettered"):
        DeliveryFactory(**{trait: True})
    _audited(DeliveryFactory(discarded=True), "discard_delivery")
    OrderingKeyFactory(ordering_key="order:7", last_seq=3)
    for number, trait in ((1, "published"), (2, "claimed"), (3, "waiting")):
        event = OutboxEventFactory(ordering_key="order:7", key_seq=number, routed_count=1)
        DeliveryFactory(event=event, **{trait: True})
    OrderingKeyFactory(ordering_key="order:8", last_seq=3)
    PrunedOrder.objects.create(ordering_key="order:8", last_seq=2)
    DeliveryFactory(event=OutboxEventFactory(ordering_key="order:8", key_seq=3, routed_count=1), published=True)
    again = DeliveryFactory(published=True)
    _audited(again, "redispatch")
    DeliveryFactory(event=again.event, redispatch=1)
    story = Story().claim().succeed()
    _of(story.last)
    step = Story().claim().step()
    _of(step.last)


def _of(attempt: Any, **values: Any) -> OutboxEvent:
    given = {"job_id": attempt.job_id, "attempt_id": attempt.pk, "fence": attempt.number, **values}
    return OutboxEventFactory(**given)


def _audited(delivery: Delivery, action: str) -> None:
    OperatorAction.objects.create(
        action=action,
        actor="ada",
        owner="shop",
        reason="it was asked for",
        delivery_id=delivery.pk,
        event_id=delivery.event_id,
        given_digest=fingerprint("{}"),
        plan_digest=fingerprint("{}"),
        created_at=delivery.created_at,
    )


def _set(row: models.Model, **columns: Any) -> set[Any]:
    unguard(type(row))
    assert type(row)._default_manager.filter(pk=row.pk).update(**columns) == 1
    return {row.pk}


def _ordered(*states: str) -> list[Delivery]:
    """Return the deliveries of events of one key, in these states."""
    key = f"order:{uuid.uuid4()}"
    OrderingKeyFactory(ordering_key=key, last_seq=len(states))
    return [
        DeliveryFactory(event=OutboxEventFactory(ordering_key=key, key_seq=number, routed_count=1), **{state: True})
        for number, state in enumerate(states, start=1)
    ]


def _vanish(delivery: Delivery) -> None:
    """Delete an event with its one delivery, as a careless hand would."""
    Delivery.objects.filter(pk=delivery.pk).delete()
    DeliveryAttempt.objects.filter(delivery_id=delivery.pk).delete()
    OutboxEvent.objects.filter(pk=delivery.event_id).delete()


@corrupts("O1")
def event_of_a_key_vanished() -> set[Any]:
    _, second, third = _ordered("published", "published", "pending")
    _vanish(second)
    return {third.event_id}


@corrupts("O1")
def counter_behind_its_events() -> set[Any]:
    key = "order:behind"
    OrderingKeyFactory(ordering_key=key, last_seq=1)
    OutboxEventFactory(ordering_key=key, key_seq=1)
    return {OutboxEventFactory(ordering_key=key, key_seq=2).pk}


@corrupts("O1")
def key_without_a_counter() -> set[Any]:
    return {OutboxEventFactory(ordering_key="order:none", key_seq=1).pk}


@corrupts("O1")
def first_of_a_key_vanished_without_record() -> set[Any]:
    first, second = _ordered("published", "pending")
    _vanish(first)
    return {second.event_id}


@corrupts("O1")
def more_vanished_than_was_pruned() -> set[Any]:
    first, second, third = _ordered("published", "published", "pending")
    PrunedOrder.objects.create(ordering_key=first.ordering_key, last_seq=1)
    _vanish(first)
    _vanish(second)
    return {third.event_id}


@corrupts("O1")
def pruned_event_is_there() -> set[Any]:
    first, second = _ordered("published", "pending")
    PrunedOrder.objects.create(ordering_key=first.ordering_key, last_seq=1)
    assert second.key_seq == 2
    return {first.event_id}


@corrupts("O2")
def event_of_a_failed_attempt() -> set[Any]:
    return {_of(Story().claim().fail().last).pk}


@corrupts("O2")
def event_of_a_running_attempt() -> set[Any]:
    return {_of(Story().claim().last).pk}


@corrupts("O2")
def event_with_another_fence() -> set[Any]:
    return {_of(Story().claim().succeed().last, fence=2).pk}


@corrupts("O2")
def event_of_another_job() -> set[Any]:
    return {_of(Story().claim().succeed().last, job_id=Story().job.pk).pk}


@corrupts("O2")
def step_of_another_attempt() -> set[Any]:
    story = Story().claim().step()
    event = _of(story.last)
    JobStep.objects.filter(job_id=story.job.pk).update(attempt_id=uuid.uuid4())
    return {event.pk}


@corrupts("O3")
def delivery_vanished() -> set[Any]:
    delivery = DeliveryFactory()
    Delivery.objects.filter(pk=delivery.pk).delete()
    return {delivery.event_id}


@corrupts("O3")
def event_vanished() -> set[Any]:
    delivery = DeliveryFactory()
    OutboxEvent.objects.filter(pk=delivery.event_id).delete()
    return {delivery.pk}


@corrupts("O3")
def delivery_in_another_order() -> set[Any]:
    (delivery,) = _ordered("pending")
    return _set(delivery, key_seq=2)


@corrupts("O4")
def published_without_a_confirmation() -> set[Any]:
    delivery = DeliveryFactory(published=True)
    DeliveryAttempt.objects.filter(delivery_id=delivery.pk).update(outcome="timeout")
    return {delivery.pk}


@corrupts("O4")
def published_without_an_attempt() -> set[Any]:
    return {DeliveryFactory(published=True, attempts=False).pk}


@corrupts("O4")
def fence_beyond_the_history() -> set[Any]:
    return _set(DeliveryFactory(dead_lettered=True), fence=6)


@corrupts("O5")
def claimed_without_an_attempt() -> set[Any]:
    delivery = DeliveryFactory(claimed=True)
    DeliveryAttempt.objects.filter(delivery_id=delivery.pk).update(outcome="lost", finished_at=delivery.created_at)
    return {delivery.pk}


@corrupts("O5")
def open_attempt_of_nobody() -> set[Any]:
    delivery = DeliveryFactory(fence=1, attempts=False)
    DeliveryAttemptFactory(delivery=delivery, outcome=None)
    return {delivery.pk}


@corrupts("O5")
def attempt_of_another_worker() -> set[Any]:
    return _set(DeliveryFactory(claimed=True), lease_owner=uuid.uuid4())


@corrupts("O5")
def attempt_without_a_delivery() -> set[Any]:
    delivery = DeliveryFactory(published=True)
    OutboxEvent.objects.filter(pk=delivery.event_id).update(routed_count=0)
    Delivery.objects.filter(pk=delivery.pk).delete()
    return {delivery.pk}


@corrupts("O6")
def published_past_a_dead_head() -> set[Any]:
    _, second = _ordered("dead_lettered", "published")
    return {second.pk}


@corrupts("O6")
def due_past_a_claimed_head() -> set[Any]:
    _, second = _ordered("claimed", "pending")
    return {second.pk}


@corrupts("O6")
def claimed_past_a_waiting_one() -> set[Any]:
    _, _, third = _ordered("published", "waiting", "claimed")
    return {third.pk}


@corrupts("O7")
def discarded_by_nobody() -> set[Any]:
    return {DeliveryFactory(discarded=True).pk}


@corrupts("O7")
def sent_again_by_nobody() -> set[Any]:
    event = DeliveryFactory(published=True).event
    return {DeliveryFactory(event=event, redispatch=1).pk}
