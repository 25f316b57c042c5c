"""An event as the payload of a subscriber's job, there and back."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from django_jobs.domain.event_fields import check_fields
from django_jobs.domain.event_payload import from_payload, to_payload
from django_jobs.domain.events import Event
from django_jobs.exceptions import EventError, PayloadError

EVENT = Event(
    id=uuid.UUID(int=7),
    type="shop.order.paid",
    version=1,
    source="shop",
    data_text='{"order_id":7}',
    created_at=datetime(2026, 11, 29, 12, tzinfo=UTC),
    ordering_key="order:7",
    key_seq=3,
)


@pytest.mark.parametrize(
    "event", [EVENT, replace(EVENT, ordering_key="", key_seq=None, data_text="", dataref="s3://x")]
)
def test_event_comes_back_as_it_was(event: Event) -> None:
    """With an order and data, and without both."""
    assert from_payload(to_payload(event)) == event


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (["a", "list"], "is a list, not an object"),
        ({}, "cannot be read: KeyError"),
        ({**to_payload(EVENT), "id": "seven"}, "cannot be read: ValueError"),
        ({**to_payload(EVENT), "created_at": 7}, "cannot be read: TypeError"),
    ],
)
def test_what_is_no_event_is_refused(stored: object, told: str) -> None:
    """A stored row that no longer fits says so, instead of failing somewhere in the handler."""
    with pytest.raises(PayloadError, match=told):
        from_payload(stored)


def test_a_moment_is_no_day() -> None:
    """A field that is declared as a date takes no datetime, although Python counts one as a date."""
    check_fields({"day": date(2026, 11, 29)}, {"day": date}, name="shop.closed v1")
    with pytest.raises(EventError, match="'day'"):
        check_fields({"day": datetime(2026, 11, 29, tzinfo=UTC)}, {"day": date}, name="shop.closed v1")
