"""Pruning of events: they go with their deliveries once all are settled, in the order of their keys, and leave a record."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, models
from django.test import override_settings

from django_jobs import clock, receive
from django_jobs.models import (
    Delivery,
    DeliveryAttempt,
    InboxMessage,
    OperatorAction,
    OrderingKey,
    OutboxEvent,
    PrunedOrder,
    PrunedStretch,
    Quarantine,
)
from django_jobs.operate import prune as module
from django_jobs.operate.prune import Pruned, prune
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.verify import verify
from django_jobs.store import prune as store_prune
from django_jobs.store.prune import take as real_take
from tests.declared_consumers import on_payment
from tests.factories_outbox import DeliveryFactory, OrderingKeyFactory, OutboxEventFactory
from tests.integration.operate.corrupt_events import healthy_events
from tests.integration.operate.stories import Story, later
from tests.integration.outbox.test_decisions import decided

pytestmark = pytest.mark.django_db


def run(days: float, **options: Any) -> Pruned:
    """Prune so many days from now."""
    with later(days=days):
        return prune(using="default", **options)


def violated() -> dict[str, tuple[str, ...]]:
    """Return what does not add up."""
    return {item.invariant.name: item.ids for item in verify(using="default").violated}


def ordered(*states: str, key: str = "order:1") -> list[uuid.UUID]:
    """Store events of one key whose deliveries are in these states; returns the events' ids."""
    OrderingKeyFactory(ordering_key=key, last_seq=len(states))
    events = [OutboxEventFactory(ordering_key=key, key_seq=n, routed_count=1) for n in range(1, len(states) + 1)]
    for event, state in zip(events, states, strict=True):
        DeliveryFactory(event=event, **{state: True})
    return [event.pk for event in events]


def left() -> set[uuid.UUID]:
    """Return the ids of the events that are there."""
    return set(OutboxEvent.objects.values_list("pk", flat=True))


def test_settled_event_goes_with_its_deliveries_and_their_attempts() -> None:
    """After KEEP_EVENTS nothing is left of it but the record; the data of others is not touched."""
    event = DeliveryFactory(published=True).event
    DeliveryFactory(published=True, event=event, destination="local:tests.receipt")
    OutboxEvent.objects.filter(pk=event.pk).update(routed_count=2)

    assert run(89.9).events == 0
    found = run(90.1)

    assert (found.events, found.kept_events, found.complete) == (1, {}, True)
    assert [model.objects.count() for model in (OutboxEvent, Delivery, DeliveryAttempt)] == [0, 0, 0]
    stretch = PrunedStretch.objects.get()
    assert (stretch.kind, stretch.rows, stretch.first_job_id, stretch.last_job_id) == ("events", 1, event.pk, event.pk)
    assert violated() == {}


@pytest.mark.parametrize("state", ["waiting", "pending", "claimed", "dead_lettered"])
def test_event_with_an_unsettled_delivery_never_goes(state: str) -> None:
    """However old it is: somebody still has to deliver it, or to decide."""
    delivery = DeliveryFactory(**{state: True})
    DeliveryFactory(published=True, event=delivery.event, destination="other")

    found = run(5000)

    assert (found.events, found.kept_events) == (0, {"undelivered": 1})
    assert (OutboxEvent.objects.count(), Delivery.objects.count()) == (1, 2)


def test_time_counts_from_the_last_delivery() -> None:
    """An event that was sent again, arrived late or was discarded late is kept from then on."""
    sent_again, late, discarded = (DeliveryFactory(**{name: True}) for name in ("published", "published", "discarded"))
    then = clock.now() + timedelta(days=60)
    with later(days=60):
        DeliveryFactory(published=True, event=sent_again.event, redispatch=1)
    Delivery.objects.filter(pk=late.pk).update(published_at=then)
    DeliveryAttempt.objects.filter(delivery=discarded, number=discarded.fence).update(finished_at=then)

    assert run(149).events == 0
    assert run(151).events == 3


def test_event_without_a_route_goes_too() -> None:
    """Until then it can be given a route; nobody has to decide about it."""
    OutboxEventFactory()

    assert run(89).events == 0
    assert run(91).events == 1
    assert violated() == {}


def test_retention_is_a_setting() -> None:
    """KEEP_EVENTS says how long."""
    DeliveryFactory(published=True)

    with override_settings(DJANGO_JOBS={"KEEP_EVENTS": timedelta(days=3)}):
        assert (run(2.9).events, run(3.1).events) == (0, 1)


def test_everything_adds_up_after_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database with deliveries in every state is pruned one event at a time, and stays sound."""
    Story().claim().succeed()
    healthy_events()
    audit = OperatorAction.objects.count()
    assert violated() == {}

    batches = []

    def take(*arguments: Any, **named: Any) -> int | None:
        batches.append(real_take(*arguments, **named))
        assert violated() == {}
        return batches[-1]

    monkeypatch.setattr(module, "take", take)
    found = run(500, batch=1)

    unsettled = set(Delivery.objects.exclude(state__in=["published", "discarded"]).values_list("event_id", flat=True))
    assert violated() == {}
    assert found.kept_events == {"undelivered": 6}
    assert left() == unsettled
    assert len(batches) > found.events > 4
    assert OperatorAction.objects.count() == audit > 0, "what people decided stays"


def test_keys_are_pruned_from_their_beginning() -> None:
    """What is published behind an event that stays has to stay too, or a gap could not be told from a loss."""
    first, second, third, fourth = ordered("published", "published", "dead_lettered", "waiting")
    other = OutboxEventFactory(ordering_key="order:1", key_seq=5, routed_count=1)  # to another destination
    DeliveryFactory(published=True, event=other, destination="other")
    OrderingKey.objects.update(last_seq=5)

    found = run(91, batch=1)

    assert (found.events, found.kept_events) == (2, {"undelivered": 2, "order": 1})
    assert left() == {third, fourth, other.pk}
    assert PrunedOrder.objects.get().last_seq == 2
    assert violated() == {}
    Delivery.objects.filter(event_id=third).update(
        state="published", dead_at=None, dead_reason="", published_at=clock.now()
    )
    Delivery.objects.filter(event_id=fourth).update(state="published", published_at=clock.now())
    assert run(91).events == 3
    assert (PrunedOrder.objects.get().last_seq, OrderingKey.objects.get().last_seq) == (5, 5)
    assert first != second


def test_ids_that_do_not_rise_with_the_numbers_are_pruned_in_two_runs() -> None:
    """The clocks of two producers differ, and the later event of a key has the lower id: it waits for the earlier one."""
    ids = ordered("published", "published")
    event = OutboxEvent.objects.get(pk=ids[0])
    higher = uuid.UUID(int=ids[1].int + 1)
    OutboxEvent.objects.filter(pk=ids[0]).delete()
    Delivery.objects.filter(event_id=ids[0]).update(event_id=higher)
    event.pk = higher
    event.save(force_insert=True)

    found = run(91, batch=1)
    assert (found.events, found.kept_events, violated()) == (1, {"order": 1}, {})
    assert run(91, batch=1).events == 1
    assert left() == set()


def test_key_goes_on_counting_after_all_of_its_events_were_pruned() -> None:
    """The counter stays: a consumer may remember the last number that it saw."""
    ordered("published", "published")
    assert run(91).events == 2

    OutboxEventFactory(ordering_key="order:1", key_seq=3)
    OrderingKey.objects.update(last_seq=3)

    assert violated() == {}


def test_dry_run_counts_events_and_takes_none() -> None:
    """As for jobs; what would stay is counted as well."""
    ordered("published", "dead_lettered", "waiting")

    found = run(91, dry_run=True)

    assert (found.events, found.kept_events) == (1, {"undelivered": 2})
    assert (OutboxEvent.objects.count(), PrunedStretch.objects.count()) == (3, 0)


def test_run_that_ends_early_goes_on() -> None:
    """Each batch is whole; the next run takes the rest."""
    for _ in range(5):
        DeliveryFactory(published=True)

    found = run(91, batch=2)

    assert (found.events, PrunedStretch.objects.filter(kind="events").count()) == (5, 3)
    assert run(91).events == 0


def test_decision_about_a_pruned_delivery_is_told() -> None:
    """Whoever looked at it before hears that it is gone."""
    decision = Redispatch(DeliveryFactory(published=True).pk, using="default")
    decision.plan()
    run(91)

    with pytest.raises(LookupError, match="There is no delivery"):
        decided(decision)


def test_constraint_of_the_project_keeps_an_event() -> None:
    """The rest of the batch goes, and the run says why one stayed."""
    kept, *_ = (DeliveryFactory(published=True).event for _ in range(5))
    kind, key = ("uuid", kept.pk) if connection.vendor == "postgresql" else ("char(32)", kept.pk.hex)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE note (event_id {kind} NOT NULL REFERENCES django_jobs_outboxevent (id))")
        cursor.execute("INSERT INTO note VALUES (%s)", [key])
    try:
        found = run(91)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE note")

    assert (found.events, found.kept_events) == (4, {"referred": 1})
    assert left() == {kept.pk}


class BrokenOffError(Exception):
    """Stands for whatever ends a run in the middle."""


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("statement", ["begin", "events_due", "events", "messages", "quarantine"])
def test_run_that_breaks_off_leaves_whole_batches(
    monkeypatch: pytest.MonkeyPatch, statement: str, is_done: bool
) -> None:
    """Before or after any statement of its second batch: what is there adds up, and the next run takes the rest."""
    ordered("published", "published", "published")
    for number in range(3):
        receive("payments", f"evt_{number}", {}, consumer=on_payment)
        receive("payments", f"evt_{number}", b"no", consumer=on_payment)
    real, seen = store_prune.run, []

    def breaks(name: str, params: Any, *, using: str) -> Any:
        if name == f"prune/{statement}":
            seen.append(name)
        breaks_now = seen.count(f"prune/{statement}") == 2 and name == f"prune/{statement}"
        if breaks_now and not is_done:
            raise BrokenOffError
        rows = real(name, params, using=using)
        if breaks_now:
            raise BrokenOffError
        return rows

    monkeypatch.setattr(store_prune, "run", breaks)
    with pytest.raises(BrokenOffError):
        run(91, batch=1)
    assert violated() == {}
    run(91, batch=1)

    assert violated() == {}
    assert [model.objects.count() for model in (OutboxEvent, Delivery, InboxMessage, Quarantine)] == [0, 0, 0, 0]
    taken = PrunedStretch.objects.values_list("kind").annotate(many=models.Sum("rows")).order_by("kind")
    assert dict(taken.filter(kind__in=["events", "messages", "quarantine"])) == {
        "events": 3, "messages": 3, "quarantine": 3,
    }  # fmt: skip
