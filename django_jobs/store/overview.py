"""How things stand, for metrics and operators: a fixed number of bounded reads, none of which sees a finished row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q

from django_jobs.conf import get_settings
from django_jobs.domain.served import Served
from django_jobs.models import Destination, Pause, Subscription
from django_jobs.store.pauses import pauses
from django_jobs.store.resources import Stand, known_resources, stands
from django_jobs.store.statements import Row, run
from django_jobs.store.times import read_now

LOOK = 10_000  # rows per look: what is more than that is counted as that


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Jobs of one queue, type and priority band (-1, 0, 1) in one state.

    ``stands`` is queued, behind (another job of its serial key has the turn), scheduled, retry, aside (its type is
    paused or no worker knows it), running or dead_lettered.
    ``oldest`` says when the one that became due first did, or will. ``expired`` counts leases that are over, ``errors``
    the different errors of dead letters.
    """

    queue_name: str
    job_type: str
    band: int
    stands: str
    many: int
    oldest: datetime | None
    expired: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Oldest:
    """The job of one queue, lane and priority that has been due for longest."""

    queue_name: str
    lane: str
    job_type: str
    priority: int
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Serial keys that dead letters of one queue, type and priority band hold, and for how long the first has."""

    queue_name: str
    job_type: str
    band: int
    many: int
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBatches:
    """Batches that are not closed, how many owners were told of dead letters in theirs, and the age of the oldest."""

    many: int = 0
    told: int = 0
    age: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Things of one name that wait, and how old the oldest is."""

    name: str
    many: int
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """A destination that does not answer, and how many batches in a row it did not."""

    name: str
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A worker that has not stopped in good order."""

    name: str
    serves: Served
    slots: int
    live: bool
    stopping: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """How things stood at ``now``, by the database's clock."""

    now: datetime
    groups: Sequence[Group]
    oldest: Sequence[Oldest]
    held: Sequence[Held]
    batches: OpenBatches
    effects: Sequence[Waiting]
    pending: Sequence[Waiting]
    dead: Sequence[Waiting]
    breakers: Sequence[Breaker]
    workers: Sequence[Present]
    pauses: Sequence[Pause]
    resources: Mapping[str, Stand]
    limit: int


def overview(*, using: str) -> Overview:
    """Read how things stand.

    Raises:
        DatabaseError: The database cannot be read.
    """
    limit = max([LOOK, *(entry["capacity"] + 1 for entry in get_settings().queues.values() if "capacity" in entry)])
    given = {"limit": limit}
    deliveries = run("queries/deliveries", given, using=using)
    return Overview(
        now=read_now(using),
        groups=[_group(row) for row in run("queries/backlog", given, using=using)],
        oldest=[_oldest(row) for row in run("queries/oldest_due", {}, using=using)],
        held=[_held(row) for row in run("queries/dead_heads", given, using=using)],
        batches=_batches(run("queries/open_batches", given, using=using)),
        effects=[_waiting(row, "name") for row in run("queries/open_effects", given, using=using)],
        pending=[_waiting(row, "destination") for row in deliveries if row["stands"] == "pending"],
        dead=[_waiting(row, "destination") for row in deliveries if row["stands"] == "dead_lettered"],
        breakers=_breakers(using),
        workers=[_present(row) for row in run("queries/present_workers", {}, using=using)],
        pauses=pauses(using=using),
        resources=stands(known_resources(using=using), using=using),
        limit=limit,
    )


def _group(row: Row) -> Group:
    same = {name: row[name] for name in ("queue_name", "job_type", "band", "stands", "many", "expired", "errors")}
    return Group(oldest=row["available_at"], **same)


def _age(row: Mapping[str, Any], column: str) -> timedelta:
    age: timedelta = row["now"] - row[column]
    return max(timedelta(0), age)


def _oldest(row: Row) -> Oldest:
    return Oldest(
        queue_name=row["queue_name"],
        lane=row["lane"],
        job_type=row["job_type"],
        priority=row["priority"],
        age=_age(row, "available_at"),
    )


def _held(row: Row) -> Held:
    same = {name: row[name] for name in ("queue_name", "job_type", "band", "many")}
    return Held(age=_age(row, "dead_at"), **same)


def _batches(rows: Sequence[Row]) -> OpenBatches:
    for row in rows:
        return OpenBatches(many=row["many"], told=row["told"], age=_age(row, "created_at"))
    return OpenBatches()


def _waiting(row: Row, name: str) -> Waiting:
    return Waiting(name=row[name], many=row["many"], age=_age(row, "created_at"))


def _breakers(using: str) -> list[Breaker]:
    """Return the destinations that do not answer; one that was removed while it was down is none any more.

    Its row stays as it was, because nobody tries it: only what this code or a subscription knows is told.
    """
    subscribed = Subscription.objects.using(using).filter(destination=OuterRef("name"), ended_at__isnull=True)
    known = Q(name__in=list(get_settings().destinations)) | Exists(subscribed)
    down = Destination.objects.using(using).filter(known, failures__gt=0).order_by("name")  # a small table
    return [Breaker(name=name, failures=failures) for name, failures in down.values_list("name", "failures")]


def _present(row: Row) -> Present:
    return Present(
        name=row["name"],
        serves=Served.from_text(row["queues"]),
        slots=(row["threads"] + row["coroutines"]) * row["processes"],
        live=row["now"] - row["heartbeat_at"] < get_settings().silent_after,
        stopping=row["stopping_at"] is not None,
    )
