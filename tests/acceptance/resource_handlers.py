"""Handlers that share a resource; loaded by workers alone, whose settings bound it."""

from __future__ import annotations

from django_jobs import job
from tests.acceptance.handlers import FAST, take, tell

API = "acceptance-api"


@job(type="acceptance.call", retry=FAST, atomic=False, resource=API)
def call(n: int = 0, seconds: float = 0.3) -> None:
    """Use the shared service for a while."""
    tell("start", n)
    take(seconds)
    tell("end", n)


@job(type="acceptance.other_call", retry=FAST, atomic=False, resource=API, queue_name="other")
def other_call(n: int = 0, seconds: float = 0.3) -> None:
    """Use the same service from another queue."""
    tell("start", n)
    take(seconds)
    tell("end", n)
