"""Waking sleeping workers on PostgreSQL: who may notify, who sleeps, and whether anything waits.

A notification carries the name of a queue and nothing else, or that there are events. It is a hint: whatever is lost is
found by the next poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db import connections, transaction

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.store.statements import run

CHANNEL = "django_jobs_wake"  # as it stands in the statements that notify
EVENTS = "*events"  # in the place of a queue's name, also as it stands in the statement: dispatchers sleep there
PACE = 0.1  # seconds between two notifications of one queue by one process; a transaction of many jobs sends one
SLEEP_LASTS = timedelta(seconds=20)  # for so long an announced sleep counts; the sleeper repeats it in time

_notified: dict[tuple[str, str], float] = {}


def may_notify(queue_name: str, *, using: str) -> bool:
    """Say whether a statement may notify this queue now if somebody sleeps: not so soon after the last time."""
    last = _notified.get((using, queue_name))
    return get_settings().notify and (last is None or clock.boot_seconds() - last >= PACE)


def note_notified(queue_name: str, *, using: str) -> None:
    """Remember a notification that was asked for, from the moment at which it is really sent: the commit."""
    telemetry.emit("queue.notify", queue_name=queue_name)
    remember_notified(queue_name, using=using)


def remember_notified(queue_name: str, *, using: str) -> None:
    """Remember a notification as sent when the transaction has committed."""
    connection = connections[using]
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(partial(_remember, (using, queue_name)), using=using, robust=True)


def _remember(place: tuple[str, str]) -> None:
    _notified[place] = clock.boot_seconds()


def wake(queues: Sequence[str], *, using: str) -> list[str]:
    """Notify those of these queues for which somebody sleeps; returns them. PostgreSQL only, else nothing happens."""
    if connections[using].vendor != "postgresql" or not get_settings().notify:
        return []
    return [row["queue_name"] for row in run("queries/wake", {"queues": list(queues)}, using=using)]


def announce_sleep(queues: Sequence[str], *, using: str) -> None:
    """Ask producers to notify these queues for at least half of ``SLEEP_LASTS`` from now.

    Writes only what would lapse before, so that many sleepers of one queue cost one write.
    """
    run("queries/announce_sleep", {"queues": list(queues), "lasting": SLEEP_LASTS}, using=using)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What waits: ``seconds`` until something may be due (≤ 0: now; None: nothing); ``aside``: set-aside jobs."""

    seconds: float | None
    aside: bool


def look(queues: Sequence[str], *, everywhere: bool, using: str) -> Look:
    """Find out with one read what an idle worker has to do.

    It says yes too often rather than too seldom: whether a job can start now, the claim decides. ``everywhere`` looks
    at ready jobs of all queues, also of those that nobody named.
    """
    (row,) = run("queries/look", {"queues": list(queues), "everywhere": everywhere}, using=using)
    return Look(seconds=row["seconds"], aside=bool(row["aside"]))
