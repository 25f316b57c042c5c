"""Pauses: an operator holds something back. What runs goes on; nothing new of it starts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q

from django_jobs import telemetry
from django_jobs.domain.identity import check_name
from django_jobs.domain.lanes import kind_parts
from django_jobs.domain.states import PauseKind
from django_jobs.exceptions import PauseError
from django_jobs.models import Pause, Resource
from django_jobs.store.brief import afresh
from django_jobs.store.schedules import give_up_ticks
from django_jobs.store.times import database_now, read_now

ACTOR_LIMIT = 150
REASON_LIMIT = 1000
_LONGEST = {PauseKind.QUEUE: 100, PauseKind.TYPE: 200, PauseKind.SCHEDULE: 200, PauseKind.RESOURCE: 100}
_CALLED = {
    PauseKind.QUEUE: "queue name",
    PauseKind.TYPE: "job type",
    PauseKind.SCHEDULE: "schedule name",
    PauseKind.RESOURCE: "resource",
}


@dataclass(frozen=True, slots=True)
class Paused:
    """The pauses in force."""

    queues: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()

    def open_queues(self, queues: Collection[str]) -> list[str]:
        """Leave out the queues that are paused."""
        return [name for name in queues if name not in self.queues]

    def allows(self, kind: str) -> bool:
        """Say whether the job type of a kind is not paused."""
        return kind_parts(kind)[0] not in self.types


def pause(kind: str, name: str, *, actor: str, reason: str, until: datetime | None = None, using: str) -> Pause:
    """Hold something back until it is resumed or until a time; a standing pause is replaced.

    Workers know within about a second. Waiting jobs keep their order, enqueueing goes on, what runs is not touched, and
    a job whose usefulness ends is dead-lettered all the same.

    Raises:
        PauseError: The kind is none of ``queue``, ``type``, ``schedule``, ``resource``, actor or reason is missing or
            too long, or ``until`` is naive or over.
        KeyFormatError: The name is empty, too long or not printable ASCII.
    """
    which = _checked(kind, name)
    values = {
        "actor": _text("actor", actor, ACTOR_LIMIT),
        "reason": _text("reason", reason, REASON_LIMIT),
        "paused_until": _future(until, using),
        "created_at": database_now(using),
    }
    Pause.objects.using(using).update_or_create(kind=which.value, name=name, defaults=values)
    telemetry.emit("pause.set", kind=which.value, name=name, actor=actor, reason=reason)
    return Pause.objects.using(using).get(kind=which.value, name=name)


def resume(kind: str, name: str, *, actor: str, using: str) -> bool:
    """Let something go on; jobs start in their old order, ticks that fell into the pause of a schedule are given up.

    Returns:
        False when it was not paused.

    Raises:
        PauseError: The kind is none of ``queue``, ``type``, ``schedule``, ``resource``, or the actor is missing or too
            long.
        KeyFormatError: The name is empty, too long or not printable ASCII.
    """
    which = _checked(kind, name)
    _text("actor", actor, ACTOR_LIMIT)
    with afresh(using):
        many = _take_away(which, name, using)
    if which is PauseKind.RESOURCE:  # what its downstream asked for ends too: somebody knows better
        many += Resource.objects.using(using).filter(name=name, paused_until__isnull=False).update(paused_until=None)
    if many:
        telemetry.emit("pause.ended", kind=which.value, name=name, actor=actor)
    return bool(many)


def _take_away(which: PauseKind, name: str, using: str) -> int:
    rows = Pause.objects.using(using).filter(kind=which.value, name=name)
    over = None
    if which is PauseKind.SCHEDULE and (row := rows.first()):
        now = read_now(using)
        over = last_of(row, now) or now
    many, _ = rows.delete()
    if over is not None:
        give_up_ticks(name, until=over, using=using)
    return many


def last_of(row: Pause, now: datetime) -> datetime | None:
    """Return the last moment of a pause that has ended by itself; None while it is in force."""
    if row.paused_until is None or row.paused_until > now:
        return None
    return row.paused_until - timedelta(microseconds=1)


def pauses(*, using: str) -> list[Pause]:
    """Return the pauses in force, by kind and name."""
    in_force = Q(paused_until__isnull=True) | Q(paused_until__gt=database_now(using))
    return list(Pause.objects.using(using).filter(in_force).order_by("kind", "name"))


def paused(*, using: str) -> Paused:
    """Return the names that are paused now; a few rows, read whole."""
    rows = pauses(using=using)
    return Paused(
        queues=frozenset(row.name for row in rows if row.kind == PauseKind.QUEUE),
        types=frozenset(row.name for row in rows if row.kind == PauseKind.TYPE),
        resources=frozenset(row.name for row in rows if row.kind == PauseKind.RESOURCE),
    )


def paused_schedules(*, using: str) -> dict[str, Pause]:
    """Return the pauses in force of schedules, by the schedule's name."""
    return {row.name: row for row in pauses(using=using) if row.kind == PauseKind.SCHEDULE}


def pause_ended(schedule: str, *, now: datetime, using: str) -> datetime | None:
    """Return the last moment of the pause of a schedule that ended by itself, if one did."""
    row = Pause.objects.using(using).filter(kind=PauseKind.SCHEDULE.value, name=schedule).first()
    return last_of(row, now) if row else None


def _checked(kind: str, name: str) -> PauseKind:
    try:
        which = PauseKind(kind)
    except ValueError:
        msg = f"A pause is of kind 'queue', 'type', 'schedule' or 'resource', not {kind!r}."
        raise PauseError(msg) from None
    check_name(name, what=_CALLED[which], limit=_LONGEST[which])
    return which


def _text(what: str, value: object, limit: int) -> str:
    if not isinstance(value, str) or not value.strip():
        msg = f"A pause needs a{'n' if what == 'actor' else ''} {what}, so that others know whom to ask; got {value!r}."
        raise PauseError(msg)
    if len(value) > limit or "\x00" in value:
        msg = f"The {what} of a pause may have up to {limit} characters and no NUL; this one has {len(value)}."
        raise PauseError(msg)
    try:
        value.encode()
    except UnicodeEncodeError:
        msg = f"The {what} of a pause has a lone surrogate, which no database stores."
        raise PauseError(msg) from None
    return value


def _future(until: datetime | None, using: str) -> datetime | None:
    if until is None:
        return None
    if not isinstance(until, datetime) or until.utcoffset() is None:
        msg = f"The end of a pause must be an aware datetime, or it names no instant; got {until!r}."
        raise PauseError(msg)
    try:
        until.astimezone(UTC)
    except OverflowError:
        msg = f"The end of a pause must be in the range of UTC (years 1 to 9999), not {until.isoformat()}."
        raise PauseError(msg) from None
    if until <= read_now(using):
        msg = f"The end of a pause must lie ahead, and {until.isoformat()} is over."
        raise PauseError(msg)
    return until
