"""The code before a deploy: one type, whose payload has its first version."""

from __future__ import annotations

from django_jobs import job
from tests.acceptance.handlers import FAST, insert_row, tell


@job(type="rollout.charge", retry=FAST)
def charge(n: int) -> None:
    """Write the row of one order."""
    tell("start", n, code="old")
    insert_row(n)
