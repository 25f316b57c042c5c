"""Resources as they stand: what runs, what the settings and people allow, and what the downstream asked for."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.ids import uuid7
from django_jobs.domain.lanes import waits_for_turn
from django_jobs.domain.resources import Bounds, Rate, Standing, parse_rate
from django_jobs.models import Resource
from django_jobs.store.statements import Row, run

LONGEST_HOLD = timedelta(days=1)  # a downstream that asks for more is asked again after this


@dataclass(frozen=True, slots=True)
class Lane:
    """Jobs of a queue that use a resource wait in a lane of their own, which has the resource's name."""

    queue_name: str
    resource: str


@dataclass(frozen=True, slots=True)
class Stand:
    """How a resource stood, and when by the database's clock."""

    standing: Standing
    at: datetime

    @property
    def room(self) -> int | None:
        """How many jobs that use it could start then; None: any number."""
        return self.standing.room(self.at)

    @property
    def opens_in(self) -> float | None:
        """Seconds until time alone made room; None when a running job had to end first."""
        opens = self.standing.opens_at(self.at)
        return None if opens is None else (opens - self.at).total_seconds()


def waiting_lanes(queues: Sequence[str], *, using: str) -> list[Lane]:
    """Return the lanes in which jobs of these queues wait for a resource; one index probe per lane."""
    rows = run("queries/open_lanes", {"queues": list(queues)}, using=using)
    return [Lane(row["queue_name"], row["lane"]) for row in rows if not waits_for_turn(row["lane"])]


def stands(resources: Collection[str], *, using: str) -> dict[str, Stand]:
    """Return how each resource stands now."""
    if not resources:
        return {}
    rows = run("queries/resources", {"names": sorted(resources)}, using=using)
    return {row["name"]: Stand(standing_of(row), row["now"]) for row in rows}


def standing_of(row: Row) -> Standing:
    """Read how a resource stands from what a statement returned."""
    return Standing(
        bounds=bounds_of(row["name"], max_running=row["max_running"], max_rate=row["max_rate"] or ""),
        running=row["running"],
        behind=row["behind"],
        paused_until=row["paused_until"],
    )


def bounds_of(name: str, *, max_running: int | None, max_rate: str) -> Bounds:
    """Return what holds for a resource: what was given on its page, else what the settings say."""
    declared = get_settings().resources.get(name, {})
    rate, burst = declared.get("rate", ""), declared.get("burst")
    return Bounds(
        limit=declared.get("limit") if max_running is None else max_running,
        rate=_stored_rate(max_rate, burst) or (parse_rate(rate, burst) if rate else None),
    )


def _stored_rate(text: str, burst: int | None) -> Rate | None:
    """Read the rate of a row; what somebody wrote there by other means and is none must not stop every claim."""
    try:
        return parse_rate(text, burst)
    except ValueError:
        return None


def spend(started: Mapping[str, int], seen: Mapping[str, Stand], *, using: str) -> None:
    """Remember that so many jobs have started, for resources with a rate; the caller holds their locks."""
    for name, many in sorted(started.items()):
        stand = seen[name]
        rate = stand.standing.bounds.rate
        if rate is not None:
            behind = rate.taken(stand.standing.behind, stand.at, many)
            run("queries/spend", {"id": uuid7(), "name": name, "behind": behind}, using=using)


def hold_resource(name: str, span: timedelta, *, job_id: uuid.UUID, using: str) -> datetime | None:
    """Start nothing that uses a resource for a time, because a downstream asked for it through this job.

    Returns:
        Until when; None when an earlier wish lasts longer.
    """
    params = {"id": uuid7(), "name": name, "span": min(span, LONGEST_HOLD), "job_id": job_id}
    rows = run("queries/hold_resource", params, using=using)
    until: datetime | None = rows[0]["paused_until"] if rows else None
    if until is not None:
        telemetry.emit("resource.held", resource=name, job_id=job_id, seconds=min(span, LONGEST_HOLD).total_seconds())
    return until


def announce_resources(*, using: str) -> None:
    """Write a row for each resource of the settings, so that people find it; what a row says stays."""
    names = sorted(get_settings().resources)
    if names:
        rows = [Resource(name=name) for name in names]
        Resource.objects.using(using).bulk_create(rows, ignore_conflicts=True)


def known_resources(*, using: str) -> list[str]:
    """Return the resources of the settings, and those that have a row: of other releases, or bounded by a person."""
    return sorted({*get_settings().resources, *Resource.objects.using(using).values_list("name", flat=True)})


def set_bounds(name: str, *, max_running: int | None, max_rate: str, using: str) -> None:
    """Let these bounds hold from the next claim on; None and the empty text mean what the settings say."""
    Resource.objects.using(using).update_or_create(
        name=name, defaults={"max_running": max_running, "max_rate": max_rate}
    )
