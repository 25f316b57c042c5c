"""Serving schedules: whichever worker looks first runs a tick, and its place can be taken only once.

No worker leads. A tick, its job and the schedule's next tick are written in one transaction that holds the schedule's
row; a worker that dies inside leaves nothing, and the next look of any worker finds the tick due.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from django.db import InterfaceError, InternalError, OperationalError, connections, transaction

from django_jobs import telemetry
from django_jobs.define.schedules import ScheduleDefinition, declared_schedules, find_schedule
from django_jobs.domain.schedules import Due, due
from django_jobs.domain.states import TickOutcome
from django_jobs.enqueue.exempt import enqueue_exempt
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import EnqueueContendedError
from django_jobs.masking import described
from django_jobs.models import Schedule
from django_jobs.operate.schedule_arguments import Answer, ask
from django_jobs.store.pauses import pause_ended, paused_schedules
from django_jobs.store.schedules import (
    Declared,
    announce,
    due_names,
    find_row,
    held,
    move_on,
    next_ticks,
    note_tick,
    schedules,
    take_over,
)
from django_jobs.store.times import read_now
from django_jobs.worker.chores import Chore

logger = logging.getLogger("django_jobs.schedules")

LOOK_EVERY = 5.0  # seconds; a schedule that another process changed is noticed within them
BUSY = 0.5  # seconds after which a schedule that somebody else serves is looked at again
GONE_AFTER = timedelta(seconds=30)  # a tick that others have left due for so long is not served by anybody
PATIENCE = timedelta(minutes=5)  # for so long a tick waits for a database that arguments= asks
TRANSIENT = (OperationalError, InterfaceError, InternalError, EnqueueContendedError)


class End(Enum):
    """What one look did about one schedule."""

    MOVED = "moved"
    BUSY = "busy"  # somebody else serves it
    FAILED = "failed"  # for the moment
    LEFT = "left"  # to the workers of another release


_AGAIN = {End.MOVED: 0.0, End.BUSY: BUSY, End.FAILED: 1.0, End.LEFT: LOOK_EVERY}  # seconds


def mine(*, using: str) -> list[ScheduleDefinition]:
    """Return the declared schedules whose jobs are stored on this database."""
    from django_jobs.enqueue.enqueue import database_of

    return [one for one in declared_schedules() if database_of(one.job.options) == using]


@dataclass(frozen=True, slots=True)
class Announced:
    """What came of announcing schedules, by name: those that are new or changed, and those that failed."""

    changed: tuple[str, ...]
    failed: tuple[str, ...]


def announce_schedules(*, using: str) -> list[str]:
    """Write down what the code declares; returns the names that are new or changed. See :func:`announce_each`."""
    return list(announce_each(mine(using=using), using=using).changed)


def announce_each(declared: Iterable[ScheduleDefinition], *, using: str) -> Announced:
    """Write down these schedules, each by itself: one that fails is logged and stops no other.

    Raises:
        DatabaseError: The database is away.
    """
    rows = {row.name: row for row in schedules(using=using)}
    changed, failed = [], []
    for one in declared:
        try:
            if announce(_declared(one), known=rows.get(one.name), using=using):
                changed.append(one.name)
        except TRANSIENT as error:
            if not connections[using].is_usable():
                raise
            logger.warning("The schedule %s is announced again: %s", one.name, described(error).message)
            failed.append(one.name)
        except Exception:
            logger.exception("The schedule %s could not be announced", one.name)
            failed.append(one.name)
    return Announced(tuple(changed), tuple(failed))


def _declared(one: ScheduleDefinition) -> Declared:
    return Declared(
        name=one.name,
        job_type=one.job.definition.job_type,
        rule=one.rule,
        missed=one.missed,
        owner=one.job.options.owner,
        code_version=one.job.definition.code_version()[:64],
    )


class Looks:
    """The looks of one worker, which remembers what it has announced, and what others should serve since when."""

    def __init__(self) -> None:
        self._unserved: dict[str, tuple[datetime, datetime]] = {}
        self._unannounced: frozenset[str] | None = None  # None: all

    def announce(self, *, using: str) -> None:
        """Say what the code declares, the first time; later what could not be said before.

        Raises:
            DatabaseError: The database is away.
        """
        left = self._unannounced
        if left is None or left:
            wanted = [one for one in mine(using=using) if left is None or one.name in left]
            self._unannounced = frozenset(announce_each(wanted, using=using).failed)

    def serve(self, *, using: str) -> float:
        """Run every tick that is due; returns after how many seconds to look again.

        Raises:
            DatabaseError: The database is away.
        """
        names = [one.name for one in mine(using=using)]
        ends = {name: self._try(name, using) for name in due_names(names, now=read_now(using), using=using)}
        return _pause(ends, next_ticks(names, using=using), read_now(using))

    def _try(self, name: str, using: str) -> End:
        try:
            return self._serve(name, using)
        except TRANSIENT as error:
            if not connections[using].is_usable():
                raise
            logger.warning("The schedule %s is tried again: %s", name, described(error).message)
        except Exception:
            logger.exception("The schedule %s could not be served", name)
        return End.FAILED

    def _serve(self, name: str, using: str) -> End:
        declared, row = find_schedule(name), find_row(name, using=using)
        if declared is None or row is None or row.next_tick is None:
            return End.LEFT
        if not _same(row, declared):
            return self._wait_for_others(row, declared, using)
        self._unserved.pop(name, None)
        return _serve_seen(row, declared, using=using)

    def _wait_for_others(self, row: Schedule, declared: ScheduleDefinition, using: str) -> End:
        """Leave alone what another release has announced, unless that has gone: then its tick stays due."""
        now, due_since = read_now(using), row.next_tick
        assert due_since is not None  # noqa: S101  the caller has looked
        seen, since = self._unserved.get(row.name, (due_since, now))
        if seen != due_since:
            since = now
        self._unserved[row.name] = (due_since, since)
        if now - since < GONE_AFTER:
            return End.LEFT
        if take_over(_declared(declared), due=due_since, using=using):
            logger.warning("The schedule %s was announced by a release that serves it no more", row.name)
        return End.MOVED


def _pause(ends: Mapping[str, End], ticks: Mapping[str, datetime], now: datetime) -> float:
    """Return after how many seconds to look again: at once only where this look has moved something on."""
    pauses_ = [LOOK_EVERY]
    for name, tick in ticks.items():
        seconds = (tick - now).total_seconds()
        pauses_.append(seconds if seconds > 0 else _AGAIN[ends.get(name, End.MOVED)])
    return min(pauses_)


def serve(*, using: str) -> float:
    """Look once, as a worker that has just started; returns after how many seconds to look again."""
    return Looks().serve(using=using)


def _same(row: Schedule, declared: ScheduleDefinition) -> bool:
    """Say whether this code serves the row; one that was announced before a rename of the job type is the same."""
    return row.rule == declared.text and row.job_type in declared.job.definition.names


def _serve_seen(row: Schedule, declared: ScheduleDefinition, *, using: str) -> End:
    now = read_now(using)
    settled = _settled(row, now, using)
    found = due(declared.rule, settled=settled, now=now, missed=declared.missed, grace=declared.grace)
    held_back = row.name in paused_schedules(using=using)
    answers = {} if held_back else ask(declared, found.run)
    with held(row.name, using=using) as again:
        if again is None:
            return End.BUSY
        if again.settled_at != row.settled_at or not _same(again, declared):
            return End.MOVED  # by another worker, meanwhile
        if held_back or row.name in paused_schedules(using=using):
            if found.run:
                telemetry.emit("schedule.paused_tick", name=row.name)
            move_on(row.name, settled=found.settled, next_tick=found.next_tick, using=using)
            return End.MOVED
        if not found.run and found.settled > settled:
            late = now - found.settled
            msg = "Tick %s of the schedule %s was skipped: %s late, with a grace of %s"
            logger.warning(msg, found.settled, row.name, late, declared.grace)
        return _run_all(declared, found, answers, now, using=using)


def _settled(row: Schedule, now: datetime, using: str) -> datetime:
    """Return up to where all is settled: what fell into a pause that nobody saw before its end is given up too."""
    ended = pause_ended(row.name, now=now, using=using)
    if ended is None or row.next_tick is None or row.next_tick > ended:
        return row.settled_at
    telemetry.emit("schedule.paused_tick", name=row.name)
    return ended


def _run_all(
    declared: ScheduleDefinition, found: Due, answers: Mapping[datetime, Answer], now: datetime, *, using: str
) -> End:
    """Run the ticks in order up to the first that must wait, and say up to where all is settled."""
    job_id = None
    done: datetime | None = None
    for tick in found.run:
        answer = answers.get(tick)
        if answer is None or (isinstance(answer, TRANSIENT) and now - tick < PATIENCE):
            break
        job_id = _run(declared, tick, answer, using=using) or job_id
        done = tick
    else:
        move_on(declared.name, settled=found.settled, next_tick=found.next_tick, job_id=job_id, using=using)
        return End.MOVED
    if done is None:
        return End.FAILED
    move_on(declared.name, settled=done, next_tick=next(declared.rule.after(done), None), job_id=job_id, using=using)
    return End.MOVED


def _run(declared: ScheduleDefinition, tick: datetime, answer: Answer, *, using: str) -> uuid.UUID | None:
    """Take the place of a tick together with its job; what the code makes of it cannot stop other schedules."""
    if isinstance(answer, BaseException):
        _refused(declared, tick, answer, using=using)
        return None
    try:
        with transaction.atomic(using=using):
            result = enqueue_tick(declared, tick, answer, using=using)
            outcome = TickOutcome.ENQUEUED if result.created else TickOutcome.DUPLICATE
            if not note_tick(declared.name, tick, outcome, job_id=result.id, using=using):
                transaction.set_rollback(True, using=using)  # somebody ran this tick before: not a second time
                return None
    except TRANSIENT:
        raise
    except Exception as error:  # noqa: BLE001  what cannot be stored today cannot be stored tomorrow: a tick must end
        _refused(declared, tick, error, using=using)
        return None
    _tell(declared, tick, outcome, using=using)
    return result.id


def enqueue_tick(
    declared: ScheduleDefinition, tick: datetime, arguments: Mapping[str, Any], *, using: str, mark: str = ""
) -> EnqueueResult:
    """Record the job of a tick. A job type without a key of its own gets one that is made of the tick."""
    options = replace(declared.job.options, database=using)
    if options.key is None:
        key = f"schedule:{declared.name}:{tick:%Y-%m-%dT%H:%M:%S%z}{mark}"
        options = replace(options, key=key, literal=frozenset({*options.literal, "key"}))
    return enqueue_exempt(options, arguments)


def _refused(declared: ScheduleDefinition, tick: datetime, error: BaseException, *, using: str) -> None:
    told = described(error)
    text = f"{told.type}: {told.message}"
    if not note_tick(declared.name, tick, TickOutcome.REFUSED, job_id=None, message=text, using=using):
        return
    logger.error("Tick %s of the schedule %s was refused: %s", tick, declared.name, text)
    _tell(declared, tick, TickOutcome.REFUSED, using=using)
    alert = {"job_id": None, "job_type": declared.job.definition.job_type, "owner": declared.job.options.owner}
    transaction.on_commit(
        lambda: telemetry.emit("owner.alert", reason="schedule_refused", using=using, **alert), using=using
    )


def _tell(declared: ScheduleDefinition, tick: datetime, outcome: TickOutcome, *, using: str) -> None:
    """Tell what came of a tick, once that is committed."""
    facts = {
        "name": declared.name,
        "outcome": outcome.value,
        "late": read_now(using) - tick,
        "queue_name": declared.job.options.queue_name,
        "job_type": declared.job.definition.job_type,
        "priority": declared.job.options.priority,
    }
    transaction.on_commit(lambda: telemetry.emit("schedule.tick", **facts), using=using)


class _Turns:
    """The turns of the workers of this process: the first one of each says what its code declares."""

    def __init__(self) -> None:
        self._looks: dict[tuple[uuid.UUID, str], Looks] = {}

    def take(self, worker_id: uuid.UUID, using: str) -> float:
        """Serve once."""
        looks = self._looks.setdefault((worker_id, using), Looks())
        looks.announce(using=using)
        return looks.serve(using=using)


SCHEDULES = Chore(name="schedules", is_due=lambda using: bool(mine(using=using)), turn=_Turns().take)
