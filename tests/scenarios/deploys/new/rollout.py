"""The code after a deploy: another payload for the type that was there, and a type that is new."""

from __future__ import annotations

from django_jobs import job
from tests.acceptance.handlers import FAST, insert_row, tell


@job(type="rollout.charge", version=2, retry=FAST)
def charge(n: int, currency: str = "EUR") -> None:
    """Write the row of one order, in its currency."""
    tell("start", n, code="new", currency=currency)
    insert_row(n)


@job(type="rollout.refund", retry=FAST)
def refund(n: int) -> None:
    """Write the row of one refund."""
    tell("start", n, code="new")
    insert_row(n)
