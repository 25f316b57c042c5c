"""A destination that is down costs no event anything; an event that is refused costs the destination nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs.domain.events import Confirmed, Error, Nacked, Parcel, Report, Returned, Timeout
from django_jobs.models import Delivery, DeliveryAttempt, Destination
from django_jobs.operate.redispatch import Redispatch
from tests.integration.outbox.conftest import CRM, Clockwork, Subscribe, delivered, dispatcher, published
from tests.integration.outbox.test_decisions import decided
from tests.publishers import Desk
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("report", [Timeout("no answer"), Error("connection refused", 503)])
def test_outage_opens_the_breaker_and_spares_the_budget(crm: Desk, clockwork: Clockwork, report: Report) -> None:
    """One batch finds out; then nothing is claimed, and after each pause a single event is tried."""
    for number in range(5):
        published(number)
    crm.answer = lambda parcel: report

    one = dispatcher()
    one.turn()
    assert len(crm.got) == 5
    published(5)
    for _ in range(10):
        one.turn()
    assert len(crm.got) == 5, "an open breaker claims nothing"

    row = Destination.objects.get()
    assert (row.name, row.failures, row.last_error) == (CRM, 1, report.reason)
    for failures in (2, 3, 4):
        clockwork.forward(seconds=60)
        one.turn()
        one.turn()
        assert len(crm.got) == 5 + failures - 1, "one probe"
        row.refresh_from_db()
        assert row.failures == failures
    assert row.open_until is not None
    assert row.open_until - clockwork.now == timedelta(seconds=8)
    assert set(Delivery.objects.values_list("state", "failed_count")) == {("pending", 0)}


def test_first_answer_closes_the_breaker(crm: Desk, clockwork: Clockwork) -> None:
    """The probe gets through, and everything else follows at once."""
    for number in range(30):
        published(number)
    crm.answer = lambda parcel: Error("down")
    dispatcher().turn()
    crm.answer = lambda parcel: Confirmed()
    clockwork.forward(seconds=5)
    with Told() as told:
        delivered()

    assert Destination.objects.get().failures == 0
    assert set(Delivery.objects.values_list("state", flat=True)) == {"published"}
    assert len(told.named("destination.up")) == 1
    assert DeliveryAttempt.objects.filter(outcome="error").count() == 30


def test_destination_may_ask_for_a_longer_pause(crm: Desk, clockwork: Clockwork) -> None:
    """Retry-After is honoured, up to an hour."""
    published()
    crm.answer = lambda parcel: Error("busy", 503, retry_after=timedelta(minutes=20))
    dispatcher().turn()

    (until,) = Destination.objects.values_list("open_until", flat=True)
    assert until is not None
    assert until - clockwork.now == timedelta(minutes=20)


def test_two_dispatchers_send_one_probe(crm: Desk, clockwork: Clockwork) -> None:
    """Whoever takes the probe keeps the others away until it is back."""
    for number in range(3):
        published(number)
    crm.answer = lambda parcel: Error("down")
    dispatcher().turn()
    clockwork.forward(seconds=5)
    other = dispatcher()
    crm.before = lambda: (setattr(crm, "before", lambda: None), other.turn())

    dispatcher().turn()

    assert len(crm.got) == 4


def test_poison_event_uses_its_budget_and_blocks_nobody(crm: Desk, clockwork: Clockwork) -> None:
    """An event that is refused five times is dead, its owner is told, and the breaker stays closed."""
    bad = published(666)
    good = [published(number) for number in range(3)]

    def answer(parcel: Parcel) -> Report:
        return Returned("no such account", 410) if parcel.event.id == bad else Confirmed()

    crm.answer = answer
    with Told() as told:
        for _ in range(6):
            delivered()
            clockwork.forward(minutes=11)

    dead = Delivery.objects.get(event_id=bad)
    assert (dead.state, dead.failed_count, dead.fence, dead.dead_reason) == ("dead_lettered", 5, 5, "returned")
    assert Delivery.objects.filter(event_id__in=good, state="published").count() == 3
    assert not Destination.objects.filter(failures__gt=0).exists()
    (alert,) = told.named("owner.alert")
    assert (alert["reason"], alert["delivery_id"]) == ("dead delivery: returned", dead.pk)


def test_event_that_times_out_alone_does_not_hold_others(crm: Desk, clockwork: Clockwork) -> None:
    """One that never gets an answer is tried later and later; the probe of the breaker is another one."""
    bad = published(666)

    def answer(parcel: Parcel) -> Report:
        return Timeout("no answer") if parcel.event.id == bad else Confirmed()

    crm.answer = answer
    dispatcher().turn()
    good = [published(number) for number in range(3)]
    for _ in range(4):
        clockwork.forward(seconds=3)
        delivered()

    assert Delivery.objects.filter(event_id__in=good, state="published").count() == 3
    assert Delivery.objects.get(event_id=bad).state == "pending"


def test_publisher_that_raises_is_an_outage(crm: Desk, clockwork: Clockwork) -> None:
    """A broken publisher ends no dispatcher and loses nothing; what it may have sent is on record."""
    published()

    def answer(parcel: Parcel) -> Report:
        raise RuntimeError("bug")

    crm.answer = answer
    dispatcher().turn()

    (attempt,) = DeliveryAttempt.objects.all()
    assert (attempt.outcome, attempt.detail) == ("error", "The publisher failed: RuntimeError.")
    assert Delivery.objects.get().state == "pending"


def test_what_the_destination_says_is_kept_harmless(crm: Desk, clockwork: Clockwork) -> None:
    """NUL and lone surrogates in an answer are no reason to lose it."""
    published()
    crm.answer = lambda parcel: Nacked("bad\x00\ud800" + "x" * 5000)
    delivered()

    text = DeliveryAttempt.objects.get().detail
    assert text.startswith("bad?x")
    assert len(text) == 2000


def test_local_delivery_goes_on_while_another_destination_is_down(
    crm: Desk, subscriber: Subscribe, clockwork: Clockwork
) -> None:
    """Each destination has its own breaker."""
    subscriber(lambda event: None)
    published()
    crm.answer = lambda parcel: Error("down")
    delivered()

    assert dict(Delivery.objects.values_list("destination", "state")) == {
        CRM: "pending",
        "local:tests.receipt": "published",
    }


def test_batch_is_told_with_its_time_and_the_longest_wish(crm: Desk, clockwork: Clockwork) -> None:
    """Once per batch, however many events it has; a delivery that was confirmed tells how old its event was."""
    for number in range(3):
        published(number)
    wishes = iter([timedelta(seconds=20), timedelta(seconds=40), None])
    crm.answer = lambda parcel: Error("busy", 429, retry_after=next(wishes))
    with Told() as told:
        dispatcher().turn()
    crm.answer = lambda parcel: Confirmed()
    clockwork.forward(seconds=90)
    with Told() as later:
        dispatcher().turn()

    (batch,) = told.named("publisher.done")
    assert (batch["destination"], batch["count"], batch["retry_after"]) == (CRM, 3, timedelta(seconds=40))
    assert isinstance(batch["seconds"], float)
    assert [fields["retry_after"] for fields in later.named("publisher.done")] == [None] * len(
        later.named("publisher.done")
    )
    assert {fields["delay"] for fields in later.named("delivery.publish")} == {timedelta(seconds=90)}


def test_what_a_person_sends_again_has_no_delay(crm: Desk) -> None:
    """Its event may be months old, which says nothing about the dispatchers."""
    published()
    delivered()
    decided(Redispatch(Delivery.objects.get().pk, using="default"))
    with Told() as told:
        delivered()

    assert [fields["delay"] for fields in told.named("delivery.publish")] == [None]
