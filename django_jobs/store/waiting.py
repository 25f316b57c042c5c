"""Jobs that wait: promotion of due ones, the end of useless ones, and what is next."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from django.db import connections
from django.db.models import Min, Q, QuerySet

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.lanes import OPEN
from django_jobs.domain.states import Alone
from django_jobs.models import Job
from django_jobs.models.job import WAITING
from django_jobs.store.claims import KnownType, Place, place_params
from django_jobs.store.limits import limits_of, with_room
from django_jobs.store.resources import Lane
from django_jobs.store.statements import Row, run
from django_jobs.store.times import database_now


def promote(
    queues: Sequence[str], *, using: str, runnable: Collection[str] | None = None, limit: int = 500
) -> list[uuid.UUID]:
    """Move jobs that have become due to the ready index, at most ``limit`` per queue, high priorities first.

    Args:
        queues: Where to look.
        using: The database alias.
        runnable: The kinds that somebody may and can run (see ``domain/lanes.py``); due jobs of other kinds are set
            aside. None: all.
        limit: How many per queue.
    """
    wait = until_due(queues, using=using)
    if wait is None or wait > timedelta(0):
        return []
    return _ready(_promote([(name, OPEN) for name in queues], runnable, limit, using))


def move_due(queues: Sequence[str], *, runnable: Collection[str], using: str, limit: int = 500) -> tuple[int, int]:
    """Do as :func:`promote` does, when something is known to be due.

    Returns:
        How many jobs became ready, and how many were moved at all. None moves while others hold what is due.
    """
    rows = _promote([(name, OPEN) for name in queues], runnable, limit, using)
    return len(_ready(rows)), len(rows)


def take_up(lanes: Collection[tuple[str, str]], *, runnable: Collection[str], using: str, limit: int = 500) -> int:
    """Promote jobs that were set aside in these lanes (queue and lane), at most ``limit`` per lane."""
    return len(_ready(_promote(lanes, runnable, limit, using))) if lanes else 0


def _promote(lanes: Collection[tuple[str, str]], runnable: Collection[str] | None, limit: int, using: str) -> list[Row]:
    params = {
        "queues": [queue for queue, _ in lanes],
        "lanes": [lane for _, lane in lanes],
        "runnable": None if runnable is None else sorted(runnable),
        "limit": limit,
    }
    rows = run("promote", params, using=using)
    ready = _ready(rows)
    if ready:
        telemetry.emit("job.promote", count=len(ready))
    _tell_aside(rows)
    return rows


def _ready(rows: Iterable[Row]) -> list[uuid.UUID]:
    return [row["id"] for row in rows if row["state"] == "queued"]


def defer(queues: Sequence[str], *, runnable: Collection[str], using: str, lanes: Sequence[Lane] = ()) -> int:
    """Set aside queued jobs of kinds that nobody may or can run now; returns how many.

    Only so many rows at the head of each queue and lane are looked at: repeat it while it finds some.
    """
    pairs = [*((name, OPEN) for name in queues), *((lane.queue_name, lane.resource) for lane in lanes)]
    params = {
        "queues": [queue for queue, _ in pairs],
        "lanes": [lane for _, lane in pairs],
        "runnable": sorted(runnable),
    }
    rows = run("defer", params, using=using)
    _tell_aside(rows)
    return len(rows)


def _tell_aside(rows: Iterable[Row]) -> None:
    for kind, count in Counter(row["kind"] for row in rows if row.get("state") != "queued").items():
        telemetry.emit("job.defer", kind=kind, count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What stands behind one place of a lane, as far as a bounded look goes.

    ``strange`` are the kinds that the asker cannot run, ``late`` counts jobs that are useless by now. ``first_mine`` is
    the position of the first job that the asker can run; ``last`` the place before it, or where the look ended. Without
    a place (on SQLite, and for suspects) only ``strange`` and ``late`` are told.
    """

    queue_name: str
    lane: str
    look: int | None
    many: int
    late: int
    strange: frozenset[str]
    first_mine: int | None
    last: Place | None


def look_at(places: Sequence[Place], *, mine: Collection[str], using: str) -> list[Seen]:
    """See what stands behind places of queues, as far as rows go that a claim would walk over; reads only."""
    rows = run("queries/head", {**place_params(places), "mine": sorted(mine)}, using=using)
    return [_seen(row) for row in rows]


def _seen(row: Row) -> Seen:
    last = None
    if row["id"] is not None:
        last = Place(
            queue_name=row["queue_name"],
            priority=row["priority"],
            available_at=row["available_at"],
            job_id=row["id"],
            lane=row["lane"],
        )
    return Seen(
        queue_name=row["queue_name"],
        lane=row["lane"],
        look=None if row["look"] is None else row["look"] - 1,
        many=row["many"],
        late=row["late"],
        strange=frozenset(json.loads(row["strange"] or "[]")),
        first_mine=row["first_mine"],
        last=last,
    )


def set_aside(queues: Sequence[str], *, using: str) -> list[tuple[str, str]]:
    """Return the lanes, with their queues, in which jobs are set aside; one index probe per lane."""
    rows = run("queries/lanes", {"queues": list(queues)}, using=using)
    return [(row["queue_name"], row["lane"]) for row in rows]


def expire(*, using: str, judge: uuid.UUID | None = None, limit: int = 500) -> list[Row]:
    """Dead-letter jobs that could not start while they were useful; returns id, type, owner and reason of each.

    With the id of a worker as ``judge`` also jobs that are set aside because no worker knows their type or payload
    version: when they have been due for the grace of the settings, and the judge has lived for as long without seeing
    a worker that announced the kind. What is not late costs nothing, however much waits.
    """
    lanes = set_aside(known_queues(using=using), using=using) if judge else []
    if not lanes and connections[using].vendor == "sqlite" and not _is_any_late(using):
        return []  # a statement that changes nothing would still take SQLite's only write lock
    params = {
        "limit": limit,
        "judge": judge,
        "grace": get_settings().unknown_type_grace,
        "queues": [queue for queue, _ in lanes],
        "lanes": [lane for _, lane in lanes],
    }
    rows = run("expire", params, using=using)
    for row in rows:
        told = {"job_id": row["id"], **{name: row.get(name, "") for name in ("job_type", "queue_name", "priority")}}
        telemetry.emit("job.expire", **told)
        telemetry.emit("job.dead", reason=row["dead_reason"], **told)
    return rows


def _is_any_late(using: str) -> bool:
    waiting = Job.objects.using(using).filter(state__in=WAITING, isolation__in=[alone.value for alone in Alone])
    return waiting.filter(useful_until__lte=database_now(using)).exists()


def _waiting_kinds(using: str) -> list[QuerySet[Job]]:
    """Return jobs that are ready, that must run alone, and that are due later: the conditions of the three indexes."""
    jobs = Job.objects.using(using)
    return [
        jobs.filter(state="queued", isolation=""),
        jobs.filter(state="queued", isolation__gt="").exclude(isolation=""),
        jobs.filter(state__in=["scheduled", "failed"]),
    ]


def next_due(queues: Sequence[str], *, using: str) -> datetime | None:
    """Return when the next waiting job becomes due, or None when nothing waits; what is set aside does not count."""
    return cast("datetime | None", _next_due(queues, using)["available_at"])


def until_due(queues: Sequence[str], *, using: str) -> timedelta | None:
    """Return how long it is until the next waiting job becomes due (zero or less: it is), or None."""
    row = _next_due(queues, using)
    return None if row["available_at"] is None else row["available_at"] - row["now"]


def _next_due(queues: Sequence[str], using: str) -> Row:
    (row,) = run("queries/next_due", {"queues": list(queues)}, using=using)
    return row


def oldest_suspect(
    queues: Sequence[str], types: Sequence[KnownType], *, using: str, lanes: Sequence[Lane] = ()
) -> Alone:
    """Return how much room the oldest due job needs that must run alone and that a worker of these types can run.

    ``Alone.NO`` when none is due in a queue with room, in its open lane or one of ``lanes``.
    """
    now = database_now(using)
    queues = with_room(queues, limits_of(queues), using=using)
    suspects = Job.objects.using(using).filter(
        Q(useful_until__isnull=True) | Q(useful_until__gt=now),
        state="queued",
        lane__in={OPEN, *(lane.resource for lane in lanes)},
        queue_name__in=list(queues),
        available_at__lte=now,
    )
    known = {(item.job_type, item.payload_version) for item in types}
    found = suspects.filter(isolation__gt="").exclude(isolation="").order_by("available_at", "id")
    for job_type, version, isolation in found.values_list("job_type", "payload_version", "isolation"):
        if (job_type, version) in known:
            return Alone(isolation)
    return Alone.NO


def known_queues(*, using: str) -> list[str]:
    """Return the queues in which something waits; one index probe per queue."""
    ready, alone, later = _waiting_kinds(using)
    found = set(alone.values_list("queue_name", flat=True).distinct())  # few rows, in an index of their own
    for waiting in (ready, later):
        last = waiting.aggregate(first=Min("queue_name"))["first"]
        while last is not None:
            found.add(last)
            last = waiting.filter(queue_name__gt=last).aggregate(first=Min("queue_name"))["first"]
    return sorted(found)
