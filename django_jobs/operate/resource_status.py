"""How resources stand: their bounds and where these come from, what runs, what holds them back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django_jobs.conf import get_settings
from django_jobs.domain.states import PauseKind
from django_jobs.models import Pause, Resource
from django_jobs.operate.wording import instant, relative
from django_jobs.store.pauses import pauses
from django_jobs.store.resources import Stand, known_resources, stands


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceStatus:
    """One resource now. ``by_hand`` says that a person gave its bounds; None of them means no bound.

    ``paused_until`` is what a downstream asked for through the job ``paused_by``, as long as it lasts.
    """

    name: str
    declared: bool
    limit: int | None
    rate: str
    by_hand: bool
    running: int
    paused_until: datetime | None
    paused_by: uuid.UUID | None
    pause: Pause | None
    lines: tuple[str, ...]


def resource_statuses(*, using: str) -> list[ResourceStatus]:
    """Return every resource that is declared or known, by name."""
    names = known_resources(using=using)
    rows = {row.name: row for row in Resource.objects.using(using).filter(name__in=names)}
    held = {row.name: row for row in pauses(using=using) if row.kind == PauseKind.RESOURCE}
    return [_status(name, stand, rows.get(name), held.get(name)) for name, stand in stands(names, using=using).items()]


def _status(name: str, stand: Stand, row: Resource | None, pause: Pause | None) -> ResourceStatus:
    standing = stand.standing
    is_held = standing.paused_until is not None and standing.paused_until > stand.at
    return ResourceStatus(
        name=name,
        declared=name in get_settings().resources,
        limit=standing.bounds.limit,
        rate=standing.bounds.rate.text if standing.bounds.rate else "",
        by_hand=row is not None and (row.max_running is not None or bool(row.max_rate)),
        running=standing.running,
        paused_until=standing.paused_until if is_held else None,
        paused_by=row.paused_by if row and is_held else None,
        pause=pause,
        lines=tuple(_lines(name, stand, pause)),
    )


def _lines(name: str, stand: Stand, pause: Pause | None) -> Iterator[str]:
    if name not in get_settings().resources:
        yield "The settings of this code do not name it."
    if pause is not None:
        end = f" until {relative(pause.paused_until, stand.at)}" if pause.paused_until else ""
        yield f"It is paused by {pause.actor} since {instant(pause.created_at)}{end}: {pause.reason}"
    yield from resource_lines(stand, name)


def resource_lines(stand: Stand, name: str) -> Iterator[str]:
    """Yield what keeps jobs that use a resource from starting now, in plain English."""
    standing, bounds = stand.standing, stand.standing.bounds
    if standing.paused_until is not None and standing.paused_until > stand.at:
        until = relative(standing.paused_until, stand.at)
        yield f"Resource {name!r} starts nothing until {until}: its downstream asked for that."
    if bounds.limit is not None and standing.running >= bounds.limit:
        yield f"Resource {name!r} runs at most {bounds.limit} at once, and {standing.running} run now."
    if bounds.rate is not None and not bounds.rate.ready(standing.behind, stand.at):
        opens = relative(bounds.rate.next_at(standing.behind, stand.at), stand.at)
        yield f"Resource {name!r} starts at most {bounds.rate.text}; the next one may start at {opens}."
