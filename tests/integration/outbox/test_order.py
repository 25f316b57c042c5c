"""Events of one ordering key arrive one after the other, in the order of their numbers; other keys do not wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_jobs import publish
from django_jobs.domain.events import Confirmed, Error, Nacked, Parcel, Report
from django_jobs.domain.ids import uuid7
from django_jobs.models import Delivery, DeliveryAttempt, OrderingKey, OutboxEvent
from django_jobs.outbox.losses import take_back_expired
from django_jobs.store import deliveries as store
from django_jobs.store.deliveries import claim_deliveries, mark_published, sweep
from django_jobs.store.outbox import promote_own
from tests.integration.outbox.conftest import CRM, PAID, Clockwork, delivered, dispatcher, published, undone
from tests.publishers import Desk

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = timedelta(seconds=40)


def states() -> dict[int, str]:
    """Return the state of each delivery by the number within its key."""
    return dict(Delivery.objects.filter(redispatch=0).values_list("key_seq", "state"))


def claim(room: int = 10) -> list[store.ClaimedDelivery]:
    """Lease what is due, as a dispatcher does."""
    return claim_deliveries(CRM, [uuid7() for _ in range(room)], worker_id=uuid7(), lease=LEASE, using="default")


def confirmed(claimed: store.ClaimedDelivery) -> bool:
    """Mark as published; says whether it was."""
    return bool(mark_published([(claimed, Confirmed())], using="default"))


def test_numbers_have_no_gap_and_only_the_head_is_due(crm: Desk) -> None:
    """A rollback leaves no gap, and everything behind the first unfinished event waits."""
    published(1, ordering_key="order:1")
    with undone():
        publish(PAID, {"order_id": 2}, ordering_key="order:1")
    published(3, ordering_key="order:1")
    published(4, ordering_key="order:1")

    assert states() == {1: "pending", 2: "waiting", 3: "waiting"}
    assert OrderingKey.objects.get().last_seq == 3
    assert [found.event.data["order_id"] for found in claim()] == [1]
    assert claim() == []


def test_marking_the_head_lets_the_next_go(crm: Desk) -> None:
    """Each confirmation promotes exactly one: the next of the key."""
    for number in (1, 2, 3):
        published(number, ordering_key="order:1")

    (head,) = claim()
    assert confirmed(head)

    assert states() == {1: "published", 2: "pending", 3: "waiting"}
    delivered()
    assert states() == {1: "published", 2: "published", 3: "published"}


def test_mark_of_another_attempt_marks_and_promotes_nothing(crm: Desk) -> None:
    """Without the proof of the attempt nothing changes, only the attempt's own row."""
    published(1, ordering_key="order:1")
    published(2, ordering_key="order:1")
    (stale,) = claim()
    Delivery.objects.filter(state="claimed").update(lease_expires_at=stale.event.created_at - LEASE)
    assert take_back_expired(using="default") == 1
    (fresh,) = claim()

    assert not confirmed(stale)

    assert states() == {1: "claimed", 2: "waiting"}
    assert list(DeliveryAttempt.objects.order_by("number").values_list("outcome", flat=True)) == ["confirmed", None]
    assert confirmed(fresh)
    assert states() == {1: "published", 2: "pending"}


def test_dead_head_blocks_its_key_alone(crm: Desk) -> None:
    """After its budget the event is dead; its key stands, other keys and events without one go on."""

    def answer(parcel: Parcel) -> Report:
        return Nacked("too large", 413) if parcel.event.data["order_id"] == 1 else Confirmed()

    crm.answer = answer
    for number, key in ((1, "order:1"), (2, "order:1"), (3, "order:2"), (4, "")):
        published(number, ordering_key=key)

    for _ in range(5):
        delivered()
        Delivery.objects.filter(state="pending").update(available_at=OutboxEvent.objects.earliest("id").created_at)

    dead = Delivery.objects.get(state="dead_lettered")
    assert (dead.failed_count, dead.fence, dead.dead_reason, dead.last_error) == (5, 5, "nacked", "too large")
    assert sorted(crm.numbers()) == [1, 1, 1, 1, 1, 3, 4]
    assert Delivery.objects.get(ordering_key="order:1", key_seq=2).state == "waiting"


def test_producer_that_looked_too_early_promotes_after_its_commit(crm: Desk) -> None:
    """The head is published between the look of a producer and its commit; the event does not wait for ever."""
    published(1, ordering_key="order:1")
    (head,) = claim()
    with transaction.atomic():
        published(2, ordering_key="order:1")
        _confirm_elsewhere(head)

    assert states() == {1: "published", 2: "pending"}


def _confirm_elsewhere(head: store.ClaimedDelivery) -> None:
    """Publish the head as seen by the producer's transaction: too late for its look, and without promoting."""
    Delivery.objects.filter(pk=head.delivery_id).update(
        state="published",
        published_at=head.event.created_at,
        attempt_id=None,
        lease_owner=None,
        lease_expires_at=None,
    )


@pytest.fixture
def lost_wakeup(crm: Desk) -> Callable[[], Any]:
    """A waiting delivery that nothing precedes: its producer died between commit and promotion."""
    published(1, ordering_key="order:1")
    published(2, ordering_key="order:1")
    (head,) = claim()
    _confirm_elsewhere(head)
    assert states() == {1: "published", 2: "waiting"}
    return lambda: states()[2]


def test_sweep_finds_what_nobody_promoted(lost_wakeup: Callable[[], Any]) -> None:
    """A walk over the keys lets heads go that wait."""
    assert sweep(CRM, after="", limit=10, using="default") == ("", 1)
    assert lost_wakeup() == "pending"
    assert sweep(CRM, after="", limit=10, using="default") == ("", 0)


def test_dispatcher_sweeps(lost_wakeup: Callable[[], Any]) -> None:
    """A dispatcher walks by itself and delivers."""
    dispatcher().turn()
    delivered()

    assert lost_wakeup() == "published"


def test_sweep_goes_on_behind_a_key(crm: Desk) -> None:
    """It walks in slices, and leaves heads alone that are claimed, dead or in backoff."""
    for number in range(7):
        published(number, ordering_key=f"order:{number}")
    claim(3)

    walked, after = 0, ""
    while True:
        after, promoted = sweep(CRM, after=after, limit=2, using="default")
        assert promoted == 0
        walked += 1
        if not after:
            break

    assert walked in {4, 5}


def test_promotion_asks_for_predecessors(crm: Desk) -> None:
    """A producer's own promotion leaves an event alone that something unfinished precedes."""
    published(1, ordering_key="order:1")
    second = published(2, ordering_key="order:1")
    claim()

    assert promote_own(second, using="default") == 0
    assert states() == {1: "claimed", 2: "waiting"}


def test_outage_keeps_the_order(crm: Desk, clockwork: Clockwork) -> None:
    """The head is tried again when the destination is back; nothing overtakes it."""
    for number in range(1, 6):
        published(number, ordering_key="order:1")
    crm.answer = lambda parcel: Error("connection refused")
    dispatcher().turn()
    assert crm.numbers() == [1]

    crm.answer = lambda parcel: Confirmed()
    for _ in range(8):
        clockwork.forward(seconds=61)
        delivered()

    assert crm.numbers() == [1, 1, 2, 3, 4, 5]
    assert set(states().values()) == {"published"}
