"""Several dispatchers and producers at once, in threads of one process."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest
from django.db import transaction

from django_jobs import publish
from django_jobs.models import Delivery, DeliveryAttempt
from tests.crowd import together
from tests.integration.outbox.conftest import PAID, crm, dispatcher, paid  # noqa: F401  fixtures
from tests.publishers import Desk

pytestmark = pytest.mark.django_db(transaction=True)


def _serve() -> None:
    """Turn a dispatcher until everything is published."""
    one = dispatcher()
    while Delivery.objects.exclude(state="published").exists():
        one.turn()


def test_r52_two_dispatchers_keep_the_order_of_each_aggregate(crm: Desk) -> None:  # noqa: F811
    """R52: 20 aggregates of 50 ordered events; order inside each, aggregates in parallel, no attempt without a row."""
    for number in range(50):
        with transaction.atomic():
            for aggregate in range(20):
                publish(PAID, {"order_id": number}, ordering_key=f"order:{aggregate:02}")

    assert together(_serve, _serve) == [None, None]

    arrived: dict[str, list[int]] = defaultdict(list)
    for parcel in crm.got:
        arrived[parcel.event.ordering_key].append(parcel.event.data["order_id"])
    assert arrived == {f"order:{aggregate:02}": list(range(50)) for aggregate in range(20)}
    assert DeliveryAttempt.objects.count() == 1000
    assert set(DeliveryAttempt.objects.values_list("number", "outcome")) == {(1, "confirmed")}
    firsts = [parcel.event.ordering_key for parcel in crm.got[:200]]
    assert len(Counter(firsts)) == 20, "aggregates do not wait for each other"


def test_producers_of_one_key_and_dispatchers_lose_no_wakeup(crm: Desk) -> None:  # noqa: F811
    """Everything under one key arrives in order while it is published by several and delivered by two, without sweeps."""
    done = threading.Event()
    ended = []

    def produce() -> None:
        for number in range(25):
            with transaction.atomic():
                publish(PAID, {"order_id": number}, ordering_key="order:1")
        ended.append(1)
        if len(ended) == 3:
            done.set()

    def serve() -> None:
        one = dispatcher()
        one._swept_at = float("inf")
        while not done.is_set() or Delivery.objects.filter(state__in=["pending", "claimed"]).exists():
            one.turn()

    assert together(produce, produce, produce, serve, serve) == [None] * 5

    left = Delivery.objects.exclude(state="published")
    seqs = [parcel.event.key_seq for parcel in crm.got]
    assert seqs == sorted(seqs)
    # A snapshot race may leave a waiting head, which only the sweep finds; see tests/model/test_waiting.py.
    if left.exists():
        _serve()
    assert [parcel.event.key_seq for parcel in crm.got] == list(range(1, 76))
