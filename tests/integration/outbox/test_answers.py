"""A publisher is foreign code: what it gives back and what it raises neither stops the dispatcher nor reaches a log as it is."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_jobs.domain.events import Confirmed, Error, Nacked
from django_jobs.models import Delivery, DeliveryAttempt
from tests.integration.outbox.conftest import dispatcher, published
from tests.publishers import Desk

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
