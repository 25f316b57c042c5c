"""What the workers of the test of schedules import: a row of business for each second."""

from __future__ import annotations

from datetime import datetime, timedelta

from django_jobs import Every, job, schedule
from tests.acceptance.handlers import insert_row


@job(type="tests.acceptance.scheduled_handlers.every_second")
def every_second(tick: datetime) -> None:
    """Write a row whose number is the tick's."""
    insert_row(int(tick.timestamp()))


schedule(every_second, Every(timedelta(seconds=1)), missed="catch_up")
