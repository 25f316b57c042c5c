"""Parcels for tests of publishers."""

from __future__ import annotations

from typing import Any

from django_jobs.domain.events import Event, Parcel
from django_jobs.domain.ids import uuid7
from tests.scenes import NOON

DATA = '{"amount":"12.50","order_id":7}'


def event(**fields: Any) -> Event:
    """Return an event that an order was paid."""
    values: dict[str, Any] = {
        "id": uuid7(),
        "type": "shop.order.paid",
        "version": 1,
        "source": "urn:django:shop",
        "data_text": DATA,
        "created_at": NOON,
    }
    return Event(**{**values, **fields})


def parcel(number: int = 1, **fields: Any) -> Parcel:
    """Return an event on its way for the ``number``-th time."""
    return Parcel(delivery_id=uuid7(), destination="crm", number=number, event=event(**fields))
