"""Serving schedules: whichever worker looks first runs a tick, and its place can be taken only once.

No worker leads. A tick, its job and the schedule's next tick are written in one transaction that holds the schedule's
row; a worker that dies inside leaves nothing, and the next look of any worker finds the tick due.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from datetime import datetime

from django.db import DatabaseError, InterfaceError, transaction

from django_jobs import telemetry
from django_jobs.define.schedules import ScheduleDefinition, declared_schedules, find_schedule
from django_jobs.domain.schedules import due
from django_jobs.domain.states import PauseKind, TickOutcome
from django_jobs.enqueue.exempt import enqueue_exempt
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.masking import described
from django_jobs.models import Schedule
from django_jobs.store.pauses import pauses
from django_jobs.store.schedules import Declared, announce, due_names, held, move_on, next_tick, note_tick
from django_jobs.store.times import read_now
from django_jobs.worker.chores import Chore

logger = logging.getLogger("django_jobs.schedules")

LOOK_EVERY = 5.0  # seconds; a schedule that another process changed is noticed within them
BUSY = 0.5  # seconds after which a schedule that somebody else serves is looked at again


def mine(*, using: str) -> list[ScheduleDefinition]:
    """Return the declared schedules whose jobs are stored on this database."""
    from django_jobs.enqueue.enqueue import database_of

    return [one for one in declared_schedules() if database_of(one.job.options) == using]


def announce_schedules(*, using: str) -> list[str]:
    """Write down what the code declares; returns the names that are new or changed."""
    now = read_now(using)
    return announce(
        (
            Declared(
                name=one.name,
                job_type=one.job.definition.job_type,
                rule=one.text,
                missed=one.missed,
                owner=one.job.options.owner,
                code_version=one.job.definition.code_version()[:64],
                next_tick=next(one.rule.after(now), None),
            )
            for one in mine(using=using)
        ),
        using=using,
    )


def serve(*, using: str) -> float:
    """Run every tick that is due; returns after how many seconds to look again."""
    names = [one.name for one in mine(using=using)]
    busy = False
    for name in due_names(names, now=read_now(using), using=using):
        try:
            busy = not _serve_one(name, using=using) or busy
        except (DatabaseError, InterfaceError):
            raise  # the database is away, or this transaction lost; the next look begins anew
        except Exception:
            logger.exception("The schedule %s could not be served", name)
    first = next_tick(names, using=using)
    if busy:
        return BUSY
    seconds = LOOK_EVERY if first is None else (first - read_now(using)).total_seconds()
    return min(max(seconds, 0.0), LOOK_EVERY)


def _serve_one(name: str, *, using: str) -> bool:
    """Run what is due of one schedule; False when somebody else holds it."""
    declared = find_schedule(name)
    if declared is None:
        return True
    with held(name, using=using) as row:
        if row is None:
            return False
        if row.rule != declared.text or row.job_type != declared.job.definition.job_type:
            return True  # another release declares it otherwise and has announced that: its workers serve it
        _serve_held(row, declared, using=using)
    return True


def _serve_held(row: Schedule, declared: ScheduleDefinition, *, using: str) -> None:
    now = read_now(using)
    found = due(declared.rule, settled=row.settled_at, now=now, missed=declared.missed, grace=declared.grace)
    held_back = _is_paused(row.name, using=using)
    job_id = None
    for tick in () if held_back else found.run:
        job_id = _run(declared, tick, using=using) or job_id
    if held_back and found.run:
        telemetry.emit("schedule.paused_tick", name=row.name)
    move_on(row.name, settled=found.settled, next_tick=found.next_tick, job_id=job_id, using=using)


def _is_paused(name: str, *, using: str) -> bool:
    return any(row.kind == PauseKind.SCHEDULE and row.name == name for row in pauses(using=using))


def _run(declared: ScheduleDefinition, tick: datetime, *, using: str) -> uuid.UUID | None:
    """Take the place of a tick together with its job; what the code makes of it cannot stop other schedules."""
    try:
        with transaction.atomic(using=using):
            result = enqueue_tick(declared, tick, using=using)
            outcome = TickOutcome.ENQUEUED if result.created else TickOutcome.DUPLICATE
            if not note_tick(declared.name, tick, outcome, job_id=result.id, using=using):
                transaction.set_rollback(True, using=using)  # somebody ran this tick before: not a second time
                return None
    except (DatabaseError, InterfaceError):
        raise
    except Exception as error:  # noqa: BLE001  a handler's arguments are user code, and a tick must end somehow
        _refused(declared, tick, error, using=using)
        return None
    telemetry.emit("schedule.tick", name=declared.name, outcome=outcome.value, late=read_now(using) - tick)
    return result.id


def enqueue_tick(declared: ScheduleDefinition, tick: datetime, *, using: str, mark: str = "") -> EnqueueResult:
    """Record the job of a tick. A job type without a key of its own gets one that is made of the tick."""
    options = replace(declared.job.options, database=using)
    if options.key is None:
        options = options.changed(key=f"schedule:{declared.name}:{tick:%Y-%m-%dT%H:%M:%S%z}{mark}"[:255])
    arguments = declared.job.definition.bind((), declared.arguments_at(tick))
    return enqueue_exempt(options, arguments)


def _refused(declared: ScheduleDefinition, tick: datetime, error: Exception, *, using: str) -> None:
    told = described(error)
    note_tick(
        declared.name, tick, TickOutcome.REFUSED, job_id=None, message=f"{told.type}: {told.message}", using=using
    )
    logger.error("Tick %s of the schedule %s was refused: %s: %s", tick, declared.name, told.type, told.message)
    telemetry.emit("schedule.tick", name=declared.name, outcome=TickOutcome.REFUSED.value, late=read_now(using) - tick)
    telemetry.emit(
        "owner.alert",
        reason="schedule_refused",
        job_id=None,
        job_type=declared.job.definition.job_type,
        owner=declared.job.options.owner,
        using=using,
    )


class _Turns:
    """The turns of the workers of this process: the first one of each says what its code declares."""

    def __init__(self) -> None:
        self._announced: set[uuid.UUID] = set()

    def take(self, worker_id: uuid.UUID, using: str) -> float:
        """Serve once."""
        if worker_id not in self._announced:
            announce_schedules(using=using)
            self._announced.add(worker_id)
        return serve(using=using)


SCHEDULES = Chore(name="schedules", is_due=lambda using: bool(mine(using=using)), turn=_Turns().take)
