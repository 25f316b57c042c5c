"""Claiming: lease jobs, open their attempts, and read all that is needed to run them, in one statement."""

from __future__ import annotations

import json
import uuid
from collections import Counter as Many
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import OperationalError, connections

from django_jobs import faults, telemetry
from django_jobs.domain.lanes import OPEN
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone
from django_jobs.models import Job
from django_jobs.store.limits import limits_of, locked, with_room
from django_jobs.store.resources import Lane, spend, stands
from django_jobs.store.statements import Row, joined, run
from django_jobs.store.times import database_now

LOCK_NOT_AVAILABLE = "55P03"
ABOVE = 101  # above every priority
BEFORE = datetime(1, 1, 2, tzinfo=UTC)  # before every due time


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownType:
    """A job type and payload version that this worker can run, and how long it leases it."""

    job_type: str
    payload_version: int
    lease: timedelta
    code_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in a queue's order: behind the job that it names."""

    queue_name: str
    priority: int
    available_at: datetime
    job_id: uuid.UUID
    lane: str = OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who claims, what it can run, and how many: one job at most per id in ``attempt_ids``.

    With ``suspects`` only jobs that must run alone are claimed; ``alone`` is what the claimer can promise, and a job
    that needs more is left to others. ``oldest`` prefers what has been due for longest to what has the highest
    priority. ``beyond`` names places behind which to look too; a claim on PostgreSQL looks at a bounded number of rows,
    on SQLite at as many as it must. ``lanes`` are those of resources that may have room; other jobs that use a resource
    are not looked at.
    """

    queues: Sequence[str]
    types: Sequence[KnownType]
    attempt_ids: Sequence[uuid.UUID]
    worker_id: uuid.UUID
    worker_child: int
    worker_name: str
    suspects: bool = False
    alone: Alone = Alone.NO
    oldest: bool = False
    beyond: Sequence[Place] = ()
    lanes: Sequence[Lane] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A leased job as its attempt sees it; the counters cannot change while the lease holds."""

    job_id: uuid.UUID
    attempt_id: uuid.UUID
    number: int
    using: str
    job_type: str
    payload_version: int
    payload_fingerprint: str
    arguments: str | None
    context: str | None
    key: str
    queue_name: str
    resource: str
    serial_key: str
    priority: int
    tenant: str
    subject: str
    owner: str
    correlation_id: str
    traceparent: str
    batch_id: uuid.UUID | None
    chain_id: uuid.UUID | None
    chain_position: int | None
    generation: int
    generation_started_at: datetime
    useful_until: datetime | None
    waiting_since: datetime | None
    error_fingerprint: str
    counters: Counters
    extra_attempts: int
    isolation: str
    alone: Alone
    worker_name: str
    code_version: str
    available_at: datetime
    claimed_at: datetime
    lease: timedelta
    lease_expires_at: datetime


def claim(request: ClaimRequest, *, using: str) -> list[Claimed]:
    """Lease up to ``len(request.attempt_ids)`` jobs that can start now.

    The ids are made by the caller, so that after a lost reply it can find out what it was given.
    """
    if not request.attempt_ids or not request.types or not request.queues:
        return []
    rows = _claim_within_limits(request, using)
    found = [_claimed(row, request, using) for row in rows]
    for job in found:
        telemetry.emit(
            "job.claim",
            job_id=job.job_id,
            attempt_id=job.attempt_id,
            number=job.number,
            job_type=job.job_type,
            queue_name=job.queue_name,
            priority=job.priority,
            delay=job.claimed_at - job.available_at,
        )
    return found


def _claim_within_limits(request: ClaimRequest, using: str) -> list[Row]:
    """Leave full queues out; claim what is bounded and has room under its lock, which others hold for moments."""
    limits = limits_of(request.queues)
    if limits:
        open_queues = with_room(request.queues, limits, using=using)
        request = replace(request, queues=open_queues)
        limits = {name: limits[name] for name in open_queues if name in limits}
    if not limits and not request.lanes:
        return _claim_now(request, {}, {}, using)
    resources = {lane.resource for lane in request.lanes}
    try:
        with locked(limits, resources, using=using):
            rows = _claim_counted(request, limits, resources, using)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
    else:
        return _committed(rows, using)
    free = [name for name in request.queues if name not in limits]
    return _claim_now(replace(request, queues=free, lanes=()), {}, {}, using)


def _claim_counted(request: ClaimRequest, limits: Mapping[str, int], resources: set[str], using: str) -> list[Row]:
    """Claim under the locks: what is counted now stays true until the commit."""
    seen = stands(resources, using=using)
    rooms = {name: stand.room for name, stand in seen.items()}
    lanes = [lane for lane in request.lanes if rooms[lane.resource] != 0]
    rows = _claim_now(replace(request, lanes=lanes), limits, rooms, using)
    spend(Many(row["resource"] for row in rows if row["resource"] in seen), seen, using=using)
    return rows


def _committed(rows: list[Row], using: str) -> list[Row]:
    if rows and not connections[using].in_atomic_block:
        faults.reached("claim.after_commit", using=using)
    return rows


def _claim_now(
    request: ClaimRequest, limits: Mapping[str, int], rooms: Mapping[str, int | None], using: str
) -> list[Row]:
    if not request.queues:
        return []
    if connections[using].vendor == "sqlite":
        return _claim_each(request, limits, rooms, using)
    return _claim_all(request, limits, rooms, using)


def _pairs(request: ClaimRequest) -> list[tuple[str, str]]:
    """Return the queues with the lanes of each that are looked at."""
    served = set(request.queues)
    return [
        *((name, OPEN) for name in request.queues),
        *((lane.queue_name, lane.resource) for lane in request.lanes if lane.queue_name in served),
    ]


def _params(request: ClaimRequest) -> dict[str, Any]:
    return {
        "worker_id": request.worker_id,
        "worker_child": request.worker_child,
        "worker_name": request.worker_name,
        "alone": request.alone.value,
    }


def _claim_all(
    request: ClaimRequest, limits: Mapping[str, int], rooms: Mapping[str, int | None], using: str
) -> list[Row]:
    room = len(request.attempt_ids)
    pairs = _pairs(request)
    beyond = [*request.beyond, *(oldest_places(pairs, using=using) if request.oldest else ())]
    return run(
        "claim",
        {
            **_params(request),
            **place_params(beyond),
            "queues": [queue for queue, _ in pairs],
            "lanes": [lane for _, lane in pairs],
            "limits": [limits.get(queue) for queue, _ in pairs],
            "rooms": [rooms.get(lane) for _, lane in pairs],
            "job_types": [known.job_type for known in request.types],
            "versions": [known.payload_version for known in request.types],
            "leases": [known.lease.total_seconds() for known in request.types],
            "code_versions": [known.code_version for known in request.types],
            "attempt_ids": list(request.attempt_ids),
            "limit": 0 if request.suspects else room,
            "suspects": room if request.suspects else 0,
            "oldest": request.oldest,
        },
        using=using,
        without=_not_needed(request, beyond),
    )


def _not_needed(request: ClaimRequest, beyond: Sequence[Place]) -> tuple[str, ...]:
    """Return the parts of the statement that would find nothing."""
    return (*(() if beyond else ("beyond",)), *(() if request.suspects else ("suspects",)))


def place_params(places: Sequence[Place]) -> dict[str, Any]:
    """Spell places as statement parameters."""
    return {
        "after_queues": [place.queue_name for place in places],
        "after_lanes": [place.lane for place in places],
        "after_priorities": [place.priority for place in places],
        "after_times": [place.available_at for place in places],
        "after_ids": [place.job_id for place in places],
    }


def before_all(queue_name: str, priority: int = ABOVE, *, lane: str = OPEN) -> Place:
    """Return the place in front of a lane's first job, or of its first job of this priority."""
    return Place(queue_name=queue_name, priority=priority, available_at=BEFORE, job_id=uuid.UUID(int=0), lane=lane)


def oldest_places(pairs: Sequence[tuple[str, str]], *, using: str) -> list[Place]:
    """Return, per queue and lane, the place in front of the priority whose first job has been due for longest."""
    rows = run(
        "queries/oldest", {"queues": [queue for queue, _ in pairs], "lanes": [lane for _, lane in pairs]}, using=using
    )
    return [before_all(row["queue_name"], row["priority"], lane=row["lane"]) for row in rows]


def _claim_each(
    request: ClaimRequest, limits: Mapping[str, int], rooms: Mapping[str, int | None], using: str
) -> list[Row]:
    if not _something_waits(request, using):
        return []  # a worker with nothing to start must not take SQLite's only write lock
    known = [
        {
            "job_type": item.job_type,
            "payload_version": item.payload_version,
            "lease_seconds": item.lease.total_seconds(),
            "code_version": item.code_version,
        }
        for item in request.types
    ]
    rows: list[Row] = []
    left = dict(rooms)
    with joined(using):
        for attempt_id in request.attempt_ids:
            found = run(
                "claim",
                {
                    **_params(request),
                    "queues": with_room(request.queues, limits, using=using),
                    "lanes": [OPEN, *sorted({lane.resource for lane in request.lanes} - _full(left))],
                    "known": json.dumps(known),
                    "attempt_id": attempt_id,
                    "suspects": int(request.suspects),
                    "oldest": int(request.oldest),
                },
                using=using,
            )
            if not found:
                break
            rows += found
            room = left.get(found[0]["resource"])
            if room is not None:
                left[found[0]["resource"]] = room - 1
    return _committed(rows, using)


def _full(rooms: Mapping[str, int | None]) -> set[str]:
    return {name for name, room in rooms.items() if room == 0}


def _something_waits(request: ClaimRequest, using: str) -> bool:
    waiting = Job.objects.using(using).filter(
        state="queued",
        queue_name__in=list(request.queues),
        lane__in={OPEN, *(lane.resource for lane in request.lanes)},
        job_type__in={known.job_type for known in request.types},
        available_at__lte=database_now(using),
    )
    waiting = waiting.filter(isolation__gt="") if request.suspects else waiting.filter(isolation="")
    return waiting.exists()


def counters_of(row: Row) -> Counters:
    """Read the job's counters of this generation."""
    return Counters(
        unknown=row["unknown_count"],
        transient=row["transient_count"],
        lost=row["lost_count"],
        free=row["free_count"],
        exit_lost=row["exit_lost_count"],
        silent_lost=row["silent_lost_count"],
        unchanged=row["unchanged_count"],
    )


def _claimed(row: Row, request: ClaimRequest, using: str) -> Claimed:
    same = (
        "attempt_id job_type payload_version payload_fingerprint arguments context queue_name resource serial_key "
        "priority tenant subject owner correlation_id traceparent batch_id chain_id chain_position generation "
        "generation_started_at useful_until waiting_since error_fingerprint isolation extra_attempts code_version "
        "available_at claimed_at lease_expires_at"
    )
    return Claimed(
        job_id=row["id"],
        number=row["fence"],
        using=using,
        key=row["key"] or "",
        counters=counters_of(row),
        alone=request.alone,
        worker_name=request.worker_name,
        lease=timedelta(seconds=row["lease_seconds"]),
        **{name: row[name] for name in same.split()},
    )
