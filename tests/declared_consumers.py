"""Job types that take messages, for tests of the inbox; their handlers do nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import job


@job(type="tests.on_payment", owner="billing", key="never:{data}", key_ttl=timedelta(hours=2), queue_name="payments")
def on_payment(data: dict[str, Any]) -> None:
    """Take the data alone; its own key is not used."""


@job(type="tests.on_refund", takes_context=True)
def on_refund(context: Any, data: Any, source: str, message_id: str, retries: int = 3) -> None:
    """Take all there is."""


@job(type="tests.on_anything")
def on_anything(data: Any, **rest: Any) -> None:
    """Take any names."""


@job(type="tests.renamed_consumer", aliases=("tests.first_consumer",))
def renamed_consumer(data: Any) -> None:
    """Answer to an older name."""


@job(type="tests.on_payment_too", key="payment:{data}", key_scope="payments")
def books(data: Any) -> None:
    """Share the scope of its keys with another consumer."""


@job(type="tests.on_payment_as_well", key="payment:{data}", key_scope="payments")
def stock(data: Any) -> None:
    """Share it too."""


@job(type="tests.no_data")
def no_data(message_id: str) -> None:
    """Take no data, so it cannot be a consumer."""


@job(type="tests.needs_more")
def needs_more(data: Any, order_id: int) -> None:
    """Need what no message has."""
