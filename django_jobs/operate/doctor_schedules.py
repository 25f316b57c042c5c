"""Looks at schedules: ticks that are due and that nobody serves."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.operate.finding import Finding, Look, Surroundings, some, warning
from django_jobs.operate.schedule_status import LATE, schedule_statuses
from django_jobs.operate.wording import instant


def schedule_looks() -> tuple[Look, ...]:
    """Return the looks at schedules."""
    return (_not_served,)


def _not_served(around: Surroundings) -> Iterator[Finding]:
    rows = [one.row for one in schedule_statuses(using=around.using) if one.pause is None]
    late = [row for row in rows if row.next_tick is not None and around.now - row.next_tick > LATE]
    if late:
        told = [f"{row.name} (since {instant(row.next_tick)})" for row in late]
        yield warning(
            "schedule-not-served",
            f"Ticks are due that nobody serves: {some(told)}.",
            "Start a worker whose code declares them, or hold those that are no longer meant to run: 'manage.py jobs "
            "pause schedule'.",
        )
