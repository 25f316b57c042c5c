"""Event types, subscribers and destinations of one test, and a dispatcher that is turned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from django.test import override_settings

from django_jobs import clock, event_type, publish, subscribe
from django_jobs.define.definition import DurableJob
from django_jobs.define.events import forget_event_type
from django_jobs.define.registry import unregister
from django_jobs.domain.ids import uuid7
from django_jobs.outbox.destinations import routes
from django_jobs.outbox.dispatcher import Dispatcher
from django_jobs.store.subscriptions import sync
from tests.integration.worker.conftest import declare  # noqa: F401  a fixture
from tests.publishers import RECORDING, Desk, desks

PAID = "tests.order.paid"

CRM = "crm"
SETTINGS = {"DESTINATIONS": {CRM: {"PUBLISHER": RECORDING, "EVENTS": [f"{PAID}:1"], "DESK": CRM}}}

Subscribe = Callable[..., DurableJob[..., Any]]


@pytest.fixture
def paid() -> Iterator[str]:
    """A declared event type with one field."""
    event_type(PAID, fields={"order_id": int, "note": str | None})
    yield PAID
    forget_event_type(PAID)


@pytest.fixture
def subscriber(paid: str) -> Iterator[Subscribe]:
    """Make a function a subscriber of the event type, routed."""
    made: list[str] = []

    def subscribed(func: Callable[..., Any], **options: Any) -> DurableJob[..., Any]:
        made.append(options.setdefault("type", "tests.receipt"))
        found = subscribe(PAID, **options)(func)
        sync(routes(), using="default")
        return found

    yield subscribed
    for name in made:
        unregister(name)


@pytest.fixture
def crm(paid: str, transactional_db: None) -> Iterator[Desk]:
    """A destination that keeps what it gets, routed."""
    desks.pop(CRM, None)
    with override_settings(DJANGO_JOBS={**settings.DJANGO_JOBS, **SETTINGS}):
        sync(routes(), using="default")
        yield desks[CRM]


@pytest.fixture
def clockwork() -> Iterator[Clockwork]:
    """A clock that stands still until it is set forward."""
    hand = Clockwork()
    with clock.override(lambda: hand.now):
        yield hand


class Clockwork:
    """The time of a test."""

    def __init__(self) -> None:
        self.now = clock.now()

    def forward(self, **by: float) -> None:
        """Let time pass."""
        self.now += timedelta(**by)


@contextmanager
def undone() -> Iterator[None]:
    """Do what the block does in a transaction that is rolled back."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def published(order_id: int = 7, **options: Any) -> Any:
    """Publish one event in a transaction of its own; returns its id."""
    with transaction.atomic():
        return publish(PAID, {"order_id": order_id}, **options)


def dispatcher() -> Dispatcher:
    """Return a dispatcher of the destinations that are declared now."""
    return Dispatcher(worker_id=uuid7(), using="default")


def delivered(turns: int = 20) -> None:
    """Turn a dispatcher until nothing is due."""
    one = dispatcher()
    for _ in range(turns):
        if one.turn() != 0.0:
            return
    raise AssertionError("something is due for ever")
