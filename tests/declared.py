"""Job types for tests of enqueueing; their handlers do nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import job

TTL = timedelta(hours=1)


@job(type="tests.plain")
def plain(number: Any = 0, **more: Any) -> None:
    """Run without a key."""


@job(type="tests.charge", key="order:{order_id}", key_ttl=TTL, subject="order:{order_id}", owner="billing")
def charge(order_id: Any, amount: Any = 1) -> None:
    """Run once per order."""


@job(type="tests.charge.v2", version=2, key="order:{order_id}", key_scope="tests.charge", key_ttl=TTL)
def charge_v2(order_id: Any, amount: Any = 1) -> None:
    """Share the keys of ``tests.charge`` under another payload version."""


@job(type="tests.strict", key="order:{order_id}", key_ttl=TTL, on_duplicate="reject")
def strict(order_id: Any) -> None:
    """Refuse duplicates."""


@job(type="tests.new_name", aliases=("tests.middle_name", "tests.first_name"), key="{order_id}")
def renamed(order_id: Any) -> None:
    """Answer to older names."""


@job(type="tests.news", useful_for=timedelta(minutes=5), queue_name="mail", priority=-5)
def news() -> None:
    """Be worth nothing after five minutes."""
