"""Rows of schedules and their ticks. Workers add and move on; nobody takes a tick away."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connections

from django_jobs import faults, telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.schedules import Missed, Rule
from django_jobs.domain.states import TickOutcome
from django_jobs.models import Schedule, ScheduleTick
from django_jobs.store.brief import afresh
from django_jobs.store.times import read_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A schedule as a release of the code has it."""

    name: str
    job_type: str
    rule: Rule
    missed: Missed
    owner: str
    code_version: str


def announce(one: Declared, *, known: Schedule | None, using: str) -> bool:
    """Write down what the code declares about one schedule; False when its row, ``known``, says so already.

    A worker does this when it starts. A new or changed schedule begins now, or with the tick that is due and not
    served: a deploy loses none. What the code does not know stays as it is, because the code of others may.
    """
    if known is not None and not _differs(known, one):
        return False
    _write(one, using=using)
    telemetry.emit("schedule.declared", name=one.name, rule=one.rule.text)
    return True


def take_over(one: Declared, *, due: datetime, using: str) -> bool:
    """Declare a schedule that others announced otherwise and do not serve; False when its due tick was served."""
    return _write(one, due=due, using=using)


def _write(one: Declared, *, due: datetime | None = None, using: str) -> bool:
    now = read_now(using)
    with afresh(using):
        row = Schedule(
            id=uuid7(),
            name=one.name,
            settled_at=now,
            next_tick=next(one.rule.after(now), None),
            **_values(one, now),
        )
        Schedule.objects.using(using).bulk_create([row], ignore_conflicts=True)
        there = Schedule.objects.using(using).select_for_update().get(name=one.name)
        if due is not None and there.next_tick != due:
            return False
        values = _values(one, now)
        if there.rule != one.rule.text:
            settled = _settled(there, now)
            values |= {"settled_at": settled, "next_tick": next(one.rule.after(settled), None)}
        Schedule.objects.using(using).filter(pk=there.pk).update(**values)
    return True


def _settled(row: Schedule, now: datetime) -> datetime:
    """Return from where a new rule counts: not before what is settled, and not after a tick that is due."""
    begins = now if row.next_tick is None or row.next_tick > now else row.next_tick - timedelta(microseconds=1)
    return max(row.settled_at, begins)


def _values(one: Declared, now: datetime) -> dict[str, Any]:
    return {
        "job_type": one.job_type,
        "rule": one.rule.text,
        "missed": one.missed.value,
        "owner": one.owner,
        "code_version": one.code_version,
        "declared_at": now,
    }


def _differs(row: Schedule, one: Declared) -> bool:
    here = (one.job_type, one.rule.text, one.missed.value, one.owner)
    return (row.job_type, row.rule, row.missed, row.owner) != here


def schedules(*, using: str) -> list[Schedule]:
    """Return all rows, by name."""
    return list(Schedule.objects.using(using).order_by("name"))


def due_names(names: Iterable[str], *, now: datetime, using: str) -> list[str]:
    """Return which of these schedules have a tick that is over."""
    due = Schedule.objects.using(using).filter(name__in=list(names), next_tick__lte=now)
    return list(due.order_by("next_tick", "name").values_list("name", flat=True))


def find_row(name: str, *, using: str) -> Schedule | None:
    """Return the row of a schedule, without a lock."""
    return Schedule.objects.using(using).filter(name=name).first()


def next_ticks(names: Iterable[str], *, using: str) -> dict[str, datetime]:
    """Return when each of these schedules ticks next; those that never do are left out."""
    rows = Schedule.objects.using(using).filter(name__in=list(names), next_tick__isnull=False)
    return {name: tick for name, tick in rows.values_list("name", "next_tick") if tick is not None}


@contextmanager
def held(name: str, *, using: str) -> Iterator[Schedule | None]:
    """Open a transaction that holds a schedule, so that nobody else serves it; None while somebody else does."""
    with afresh(using):
        rows = Schedule.objects.using(using).filter(name=name)
        if connections[using].features.has_select_for_update_skip_locked:
            rows = rows.select_for_update(skip_locked=True)
        yield rows.first()


def note_tick(
    name: str,
    tick: datetime,
    outcome: TickOutcome,
    *,
    job_id: uuid.UUID | None,
    message: str = "",
    action_id: uuid.UUID | None = None,
    using: str,
) -> bool:
    """Take the place of a tick; False when it was taken, by whomever."""
    row = ScheduleTick(
        id=uuid7(),
        schedule_name=name,
        tick=tick,
        outcome=outcome.value,
        job_id=job_id,
        message=message,
        action_id=action_id,
        created_at=read_now(using),
    )
    ScheduleTick.objects.using(using).bulk_create([row], ignore_conflicts=True)
    taken = ScheduleTick.objects.using(using).filter(schedule_name=name, tick=tick).values_list("pk", flat=True).first()
    faults.reached("schedule.after_insert", using=using)
    return taken == row.pk


def move_on(
    name: str, *, settled: datetime, next_tick: datetime | None, job_id: uuid.UUID | None = None, using: str
) -> None:
    """Say up to where the schedule is settled, and when it ticks next."""
    values: dict[str, object] = {"settled_at": settled, "next_tick": next_tick}
    if job_id is not None:
        values["last_job_id"] = job_id
    Schedule.objects.using(using).filter(name=name).update(**values)


def give_up_ticks(name: str, *, until: datetime, using: str) -> None:
    """Settle a schedule whose tick is due up to a moment; the next worker that looks finds the tick after it.

    The rule is known to the code that declares the schedule, and this may be other code.
    """
    due = Schedule.objects.using(using).filter(name=name, next_tick__lte=until)
    due.update(settled_at=until, next_tick=until + timedelta(microseconds=1))


def ticks_of(name: str, *, most: int, using: str) -> list[ScheduleTick]:
    """Return the last ticks of a schedule, newest first."""
    return list(ScheduleTick.objects.using(using).filter(schedule_name=name).order_by("-tick")[:most])


def set_last_job(name: str, job_id: uuid.UUID, *, using: str) -> None:
    """Remember the job that was run by hand."""
    Schedule.objects.using(using).filter(name=name).update(last_job_id=job_id)
