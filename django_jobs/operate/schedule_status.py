"""How schedules stand: what the rows say, and whether somebody serves them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_jobs.define.schedules import find_schedule
from django_jobs.models import Pause, Schedule
from django_jobs.store.pauses import paused_schedules
from django_jobs.store.schedules import schedules
from django_jobs.store.times import read_now

LATE = timedelta(seconds=30)  # after its tick a schedule is served by nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStatus:
    """One schedule now; ``note`` says in plain English what is out of order, empty if nothing is."""

    row: Schedule
    pause: Pause | None
    note: str


def schedule_statuses(*, using: str) -> list[ScheduleStatus]:
    """Return every schedule, by name."""
    held = paused_schedules(using=using)
    now = read_now(using)
    return [status_of(row, held.get(row.name), now) for row in schedules(using=using)]


def status_of(row: Schedule, pause: Pause | None, now: datetime) -> ScheduleStatus:
    """Say how one schedule stands."""
    return ScheduleStatus(row=row, pause=pause, note=_note(row, now))


def _note(row: Schedule, now: datetime) -> str:
    if row.next_tick is None:
        return "It never ticks again."
    if now - row.next_tick > LATE:
        return "Its tick is over and nobody has served it: no worker runs whose code declares it like this."
    declared = find_schedule(row.name)
    if declared is None:
        return "This code does not declare it; workers of another release may."
    if declared.text != row.rule:
        return f"This code says {declared.text!r}; workers of another release serve it."
    return ""
