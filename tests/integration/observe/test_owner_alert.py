"""The signal ``owner_alert`` is sent for each reason, once, after the commit, and no receiver does harm."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from django_jobs import store
from django_jobs.domain.states import DeadReason
from django_jobs.exceptions import PermanentError
from django_jobs.signals import owner_alert
from django_jobs.store.completion import Given
from tests.declared import charge
from tests.integration.worker.conftest import Declare, run_one
from tests.scenes import BUDGET, failure, known, request

pytestmark = pytest.mark.django_db(transaction=True)

Alerts = list[dict[str, Any]]


@pytest.fixture
def alerts() -> Iterator[Alerts]:
    """What the signal told while the test runs."""
    heard: Alerts = []

    def hear(**told: Any) -> None:
        heard.append({name: value for name, value in told.items() if name not in {"signal", "sender"}})

    owner_alert.connect(hear, weak=False)
    yield heard
    owner_alert.disconnect(hear)


def failing(declare: Declare, error: Exception) -> None:
    """Run the first attempt of a job that fails."""

    def fail() -> None:
        raise error

    declare(fail, owner="billing").enqueue()
    run_one()


def test_first_unknown_failure(declare: Declare, alerts: Alerts) -> None:
    """The owner hears of an error that nobody classed, with its masked text."""
    failing(declare, ValueError("no, password=hunter2"))

    (alert,) = alerts
    assert (alert["reason"], alert["owner"], alert["job_type"]) == (
        "first unknown failure of its kind",
        "billing",
        "tests.handler",
    )
    assert alert["message"] == "ValueError: no, password=[redacted]"
    assert isinstance(alert["job_id"], uuid.UUID)


def test_dead_letter(declare: Declare, alerts: Alerts) -> None:
    """The owner hears why, and how it began."""
    failing(declare, PermanentError("card gone"))

    (alert,) = alerts
    assert (alert["reason"], alert["owner"]) == ("dead letter: permanent", "billing")
    assert alert["details"]["dead_reason"] == "permanent"
    assert alert["details"]["attempts"] == 1
    assert alert["details"]["first_error"] == "card gone"


def test_duplicate_of_a_dead_letter_after_the_commit(alerts: Alerts) -> None:
    """A producer's answer is told when its transaction has committed, and not when it was rolled back."""
    charge.enqueue(order_id=1)
    (claimed,) = store.claim(request(types=[known("tests.charge")]), using="default")
    held = Given(job_id=claimed.job_id, attempt_id=claimed.attempt_id, number=1, using="default")
    store.dead_letter(held, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET)
    with transaction.atomic():
        charge.enqueue(order_id=1)
        transaction.set_rollback(True)
    assert alerts == []
    with transaction.atomic():
        charge.enqueue(order_id=1)
        assert alerts == []

    (alert,) = alerts
    assert (alert["reason"], alert["owner"], alert["job_type"]) == ("duplicate_of_dead", "billing", "tests.charge")
    assert alert["job_id"] == claimed.job_id


def test_receiver_that_fails_harms_nobody(declare: Declare, alerts: Alerts) -> None:
    """The attempt's end is recorded, and the other receivers hear it."""

    def broken(**_: Any) -> None:
        raise RuntimeError("no pager today")

    owner_alert.connect(broken, weak=False)
    try:
        failing(declare, PermanentError("no"))
    finally:
        owner_alert.disconnect(broken)

    assert len(alerts) == 1
