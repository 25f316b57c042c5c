"""Pruning of the inbox: what need not be remembered goes, what could come again stays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import clock, receive
from django_jobs.domain.ids import uuid7
from django_jobs.models import InboxMessage, OutboxEvent
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
        type="shop.order.paid", version=1, source="shop", data="{}", data_digest="v1:0", created_at=clock.now()
    )
    ids = [str(event.pk), str(event.pk).upper(), str(uuid7()), f"{event.pk}-x", "evt_1"]
    for message_id in ids:
        receive("shop", message_id, {}, consumer=on_payment)

    assert left(36) == {str(event.pk), str(event.pk).upper()}
    OutboxEvent.objects.all().delete()
    assert left(36) == set()


@pytest.mark.django_db
def test_run_counts_messages_and_a_dry_run_takes_none() -> None:
    """As for everything else that is pruned."""
    receive("payments", "evt_1", {}, consumer=on_payment)

    with later(days=36):
        assert prune(using="default", dry_run=True).messages == 0
        assert InboxMessage.objects.count() == 1
        assert prune(using="default").messages == 1
    assert InboxMessage.objects.count() == 0
