"""Pruning of the inbox and of quarantine: what need not be remembered goes, what could come again stays."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings

from django_jobs import clock, receive
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.ids import uuid7
from django_jobs.models import InboxMessage, OutboxEvent, PrunedStretch, Quarantine
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from tests.declared_consumers import on_payment
from tests.integration.operate.stories import later


def left(days: float, *, batch: int = 500) -> set[str]:
    """Prune so many days from now; returns the ids of the messages that are left."""
    with later(days=days):
        prune(using="default", batch=batch)
    return set(InboxMessage.objects.values_list("message_id", flat=True))


@pytest.mark.django_db
def test_messages_go_when_their_time_is_up() -> None:
    """Each by its own ``keep``, in batches, and the rest of the rows still adds up."""
    for number in range(5):
        receive("payments", f"short-{number}", {}, consumer=on_payment, keep=timedelta(hours=1))
    receive("payments", "usual", {}, consumer=on_payment)
    receive("payments", "x" * 255, {}, consumer=on_payment, keep=timedelta(days=400))

    assert len(left(0.04)) == 7
    assert left(0.05, batch=2) == {"usual", "x" * 255}
    assert left(34.9) == {"usual", "x" * 255}
    assert left(35.1) == {"x" * 255}
    assert verify(using="default").violated == ()
    assert left(401) == set()


@pytest.mark.django_db
def test_event_of_this_site_is_remembered_as_long_as_the_event() -> None:
    """It could be dispatched again at any time; ids that are none of ours, or only look so, go."""
    event = OutboxEvent.objects.create(
        type="shop.order.paid",
        version=1,
        source="shop",
        data="{}",
        data_digest=fingerprint("{}"),
        created_at=clock.now(),
    )
    ids = [str(event.pk), str(event.pk).upper(), str(uuid7()), f"{event.pk}-x", "evt_1"]
    for message_id in ids:
        receive("shop", message_id, {}, consumer=on_payment)

    assert left(36) == {str(event.pk), str(event.pk).upper()}
    OutboxEvent.objects.all().delete()
    assert left(36) == set()


@pytest.mark.django_db
def test_run_counts_messages_and_a_dry_run_takes_none() -> None:
    """As for everything else that is pruned; a batch leaves its record."""
    receive("payments", "evt_1", {}, consumer=on_payment)
    message = InboxMessage.objects.get()

    with later(days=36):
        assert prune(using="default", dry_run=True).messages == 1
        assert InboxMessage.objects.count() == 1
        assert prune(using="default").messages == 1
    assert InboxMessage.objects.count() == 0
    stretch = PrunedStretch.objects.get(kind="messages")
    assert (stretch.rows, stretch.first_job_id, stretch.last_job_id) == (1, message.pk, message.pk)


@pytest.mark.django_db
def test_message_that_comes_after_its_event_was_pruned_is_a_duplicate_while_its_key_lives() -> None:
    """The row goes with the event, the key of its job later: no second job is made as long as it is there."""
    event = OutboxEvent.objects.create(
        type="shop.order.paid",
        version=1,
        source="shop",
        data="{}",
        data_digest=fingerprint("{}"),
        created_at=clock.now(),
    )
    first = receive("shop", str(event.pk), {"order": 7}, consumer=on_payment, keep=timedelta(days=200))
    with later(days=91):
        prune(using="default")
        assert (OutboxEvent.objects.count(), InboxMessage.objects.count()) == (0, 1)
    InboxMessage.objects.all().delete()

    with later(days=92):
        again = receive("shop", str(event.pk), {"order": 7}, consumer=on_payment, keep=timedelta(days=200))

    assert (again.outcome, again.job_id) == ("duplicate", first.job_id)


@pytest.mark.django_db
def test_quarantine_goes_by_its_own_time() -> None:
    """What was put aside is there for a human for 90 days, then it goes with its content, recorded."""
    for number in range(3):
        receive("payments", f"evt_{number}", b"no json", consumer=on_payment)
    with later(days=50):
        receive("payments", "evt_9", b"no json", consumer=on_payment)

    with later(days=89):
        assert prune(using="default").quarantine == 0
    with later(days=91):
        assert prune(using="default", dry_run=True).quarantine == 3
        assert prune(using="default", batch=2).quarantine == 3

    assert list(Quarantine.objects.values_list("message_id", flat=True)) == ["evt_9"]
    assert sorted(PrunedStretch.objects.filter(kind="quarantine").values_list("rows", flat=True)) == [1, 2]
    assert verify(using="default").violated == ()
    with later(days=92):
        again = receive("payments", "evt_0", b"no json", consumer=on_payment)
    assert (again.outcome, Quarantine.objects.count()) == ("quarantined", 2)


@pytest.mark.django_db
def test_time_of_quarantine_is_a_setting() -> None:
    """KEEP_QUARANTINE says how long."""
    receive("payments", "evt_1", b"no json", consumer=on_payment)

    with override_settings(DJANGO_JOBS={"KEEP_QUARANTINE": timedelta(days=2)}):
        for days, taken in ((1.9, 0), (2.1, 1)):
            with later(days=days):
                assert prune(using="default").quarantine == taken
