"""Transactions of our own in web processes, commands and dispatchers: none keeps its locks while its process stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_jobs import faults, publish, receive
from django_jobs.store import prune as store_prune
from django_jobs.store.brief import IDLE
from tests.declared import plain
from tests.declared_consumers import on_payment
from tests.factories_outbox import DeliveryFactory
from tests.integration.operate.test_prune_events import run as pruned
from tests.integration.outbox.conftest import PAID, Subscribe, dispatcher, published

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

LIMITED = f"{IDLE // 1000}s"


def idle_limit(using: str = "default") -> str:
    """Return how long the session may idle inside the transaction that is open."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        return str(cursor.fetchone()[0])


def seen_at(point: str, act: Callable[[], Any]) -> list[str]:
    """Return the limit that holds at a point of an act."""
    found: list[str] = []
    with faults.armed(point, lambda using: found.append(idle_limit(using))):
        act()
    assert idle_limit() != LIMITED, "it was limited for that transaction alone"
    return found


def test_message_that_is_taken() -> None:
    """Another delivery of the same message waits for its row."""
    found = seen_at("inbox.after_insert", lambda: receive("payments", "evt_1", {}, consumer=on_payment))

    assert found == [LIMITED]


def test_many_jobs_that_are_stored() -> None:
    """Other producers wait for their keys."""
    assert seen_at("enqueue.after_insert", lambda: plain.enqueue_many([{"number": 1}])) == [LIMITED]


def test_local_delivery(subscriber: Subscribe) -> None:
    """Nobody could take back what is locked."""
    subscriber(lambda event: None)
    published()

    assert seen_at("dispatch.after_mark", dispatcher().turn) == [LIMITED]


def test_detached_event(paid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other producers wait for the number of its ordering key."""
    from django_jobs.outbox import emit as room

    found, real = [], room.emit

    def emit(*arguments: Any, **named: Any) -> Any:
        found.append(idle_limit())
        return real(*arguments, **named)

    monkeypatch.setattr(room, "emit", emit)
    publish(PAID, {"order_id": 1}, ordering_key="order:1", detached=True)

    assert found == [LIMITED]


def test_batch_of_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends an event again waits for its row."""
    found, real = [], store_prune.run
    DeliveryFactory(published=True)

    def run(name: str, params: Any, *, using: str) -> Any:
        if name == "prune/events":
            found.append(idle_limit())
        return real(name, params, using=using)

    monkeypatch.setattr(store_prune, "run", run)
    assert pruned(90.1).events == 1

    assert found == [LIMITED]


def test_transaction_of_the_project_is_not_limited() -> None:
    """It idles as long as the project lets it."""
    with transaction.atomic():
        before = idle_limit()
        receive("payments", "evt_1", {}, consumer=on_payment)
        plain.enqueue_many([{"number": 1}])
        assert idle_limit() == before
