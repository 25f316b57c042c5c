"""A publisher is foreign code: what it gives back and what it raises neither stops the dispatcher nor reaches a log as it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from django_jobs.domain.events import Confirmed, Error, Nacked
from django_jobs.domain.ids import uuid7
from django_jobs.models import Delivery, DeliveryAttempt
from django_jobs.outbox.dispatcher import Dispatcher
from tests.integration.outbox.conftest import dispatcher, published
from tests.publishers import Desk, RecordingPublisher

pytestmark = pytest.mark.django_db(transaction=True)


class OwnNacked(Nacked):
    """A publisher's own kind of report."""


@pytest.mark.parametrize(
    "report",
    [
        None,
        "yes",
        Confirmed(receipt=None),  # type: ignore[arg-type]
        Confirmed(status=2**70),
        Confirmed(status="200"),  # type: ignore[arg-type]
        Error(reason=ValueError("no")),  # type: ignore[arg-type]
        OwnNacked("no"),
        Error("busy", retry_after=30),  # type: ignore[arg-type]
    ],
    ids=["none", "text", "receipt", "huge status", "status text", "reason", "subclass", "retry after"],
)
def test_report_that_is_none_is_an_error_and_the_others_are_recorded(crm: Desk, report: Any) -> None:
    """The event beside it is marked as published, this one is tried again later, and the dispatcher goes on."""
    published(1)
    published(2)
    crm.answer = lambda parcel: report if parcel.event.data["order_id"] == 1 else Confirmed()

    one = dispatcher()
    one.turn()
    one.turn()

    assert sorted(Delivery.objects.values_list("state", flat=True)) == ["pending", "published"]
    odd = DeliveryAttempt.objects.get(delivery__state="pending")
    assert odd.outcome == "error"
    assert odd.detail.startswith("The publisher gave a ")


def test_what_a_publisher_raises_is_logged_without_its_secrets(crm: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """An error may quote headers; the log has its type and its place."""

    def fail(parcel: object) -> Any:
        raise RuntimeError("refused: Authorization: Bearer s3cr3t-t0ken-12345")

    published(1)
    crm.answer = fail

    with caplog.at_level(logging.DEBUG, logger="django_jobs"):
        dispatcher().turn()

    assert "RuntimeError" in caplog.text
    assert "s3cr3t-t0ken-12345" not in caplog.text


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), GeneratorExit()], ids=repr)
def test_publisher_that_wants_to_end_its_thread_is_an_outage(crm: Desk, error: BaseException) -> None:
    """What is no Exception ends no dispatcher either, and its batch is on record instead of being sent after each lease."""

    def fail(parcel: object) -> Any:
        raise error

    published(1)
    crm.answer = fail

    dispatcher().turn()

    (attempt,) = DeliveryAttempt.objects.all()
    assert (attempt.outcome, attempt.detail) == ("error", f"The publisher failed: {type(error).__name__}.")
    assert Delivery.objects.get().state == "pending"


@pytest.mark.parametrize(
    "spoil", [lambda reports: None, lambda reports: 7, iter], ids=["nothing", "a number", "an iterator"]
)
def test_what_is_no_list_of_reports_is_on_record(
    crm: Desk, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any], Any]
) -> None:
    """A publisher that returns nothing does not send its batch anew after each lease; one that yields is understood."""
    real = RecordingPublisher.publish_batch
    monkeypatch.setattr(RecordingPublisher, "publish_batch", lambda *args, **given: spoil(real(*args, **given)))
    published(1)

    dispatcher().turn()

    (attempt,) = DeliveryAttempt.objects.all()
    assert attempt.outcome == ("confirmed" if spoil is iter else "error")


@pytest.mark.parametrize("answer", [Confirmed(), Error("down"), None], ids=["confirmed", "error", "stopping"])
def test_no_statement_of_a_dispatcher_is_without_a_bound(crm: Desk, answer: Any) -> None:
    """A database that stands still must not hold a thread for ever, also while it gives back what it did not send."""
    published(1)
    bounded = False

    @contextmanager
    def guard() -> Iterator[None]:
        nonlocal bounded
        bounded = True
        try:
            yield
        finally:
            bounded = False

    claimed = False

    def look(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal claimed
        assert bounded, sql
        claimed = claimed or "INTO django_jobs_deliveryattempt" in sql
        return execute(sql, *rest)

    one = Dispatcher(worker_id=uuid7(), using="default", guarded=guard)
    crm.answer = lambda parcel: answer
    if answer is None:
        one.stopping = lambda: claimed
    with connection.execute_wrapper(look):
        one.turn()

    assert DeliveryAttempt.objects.get().outcome == (
        "released" if answer is None else answer.__class__.__name__.lower()
    )
