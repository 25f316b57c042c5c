"""The schedule that is hit."""

from __future__ import annotations

from datetime import timedelta

from django_jobs import Every, job
from django_jobs.define.schedules import schedule

NAME = "tests.crash.scheduled"


def declare() -> None:
    """Declare it; the caller takes care that it is forgotten."""
    schedule(job(type=NAME)(_nothing), Every(timedelta(days=1)))


def _nothing() -> None:
    """Do nothing."""
