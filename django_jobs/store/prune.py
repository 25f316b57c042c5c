"""Removing what is old: content first, then rows, then keys; each batch in one short transaction with its record.

A batch is looked for without a lock. Then its rows are locked, what others hold is left out, and under the locks the
same question is asked again: nothing that became needed in between is taken, and nobody waits for more than one batch.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import OperationalError, connections, models, transaction

from django_jobs import telemetry
from django_jobs.domain.ids import first_id, uuid7
from django_jobs.domain.states import Pruning
from django_jobs.models import IdempotencyKey, InboxMessage, Job, OutboxEvent, Quarantine, ReplayRequest, SideEffect
from django_jobs.store.statements import run

SKEW = timedelta(days=1)  # how far a producer's clock, which is in the ids, may be from the database's
START = uuid.UUID(int=0)
YOUNG = "young"
_BUSY = {"55P03", "40P01", "40001"}  # lock not available, deadlock, serialization failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is old now: instants before which something must have ended to be taken."""

    now: datetime
    content_before: datetime
    dead_before: datetime
    rows_before: datetime
    workers_before: datetime
    events_before: datetime
    quarantine_before: datetime

    def last_id(self, kind: Pruning) -> uuid.UUID:
        """Return the highest id that a row of this age can have, whatever its producer's clock said."""
        before = {
            Pruning.JOBS: self.rows_before,
            Pruning.EVENTS: self.events_before,
            Pruning.MESSAGES: self.now,
            Pruning.QUARANTINE: self.quarantine_before,
            Pruning.REPLAYS: self.rows_before,
        }.get(kind, max(self.content_before, self.dead_before))
        return first_id(before + SKEW)

    def finished_before(self, kind: Pruning) -> datetime:
        """Return the instant that is recorded with a batch."""
        return {
            Pruning.CONTENT: self.content_before,
            Pruning.JOBS: self.rows_before,
            Pruning.EVENTS: self.events_before,
            Pruning.QUARANTINE: self.quarantine_before,
            Pruning.REPLAYS: self.rows_before,
        }.get(kind, self.now)

    def params(self) -> dict[str, object]:
        """Return the instants as parameters of the statements."""
        return {
            "now": self.now,
            "content_before": self.content_before,
            "dead_before": self.dead_before,
            "rows_before": self.rows_before,
            "events_before": self.events_before,
            "quarantine_before": self.quarantine_before,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The next ids in order: those that may be taken, and how many old ones are kept and why."""

    kind: Pruning
    after: uuid.UUID
    last: uuid.UUID
    due: tuple[uuid.UUID, ...]
    kept: Mapping[str, int]


def look(kind: Pruning, limits: Limits, *, after: uuid.UUID, limit: int, using: str) -> Window | None:
    """Look at the ``limit`` ids that follow ``after``, without a lock; None when there is none left that is old."""
    verdicts = _verdicts(kind, limits, after=after, upto=limits.last_id(kind), limit=limit, using=using)
    if not verdicts:
        return None
    kept = Counter(why for why in verdicts.values() if why not in ("", YOUNG))
    due = tuple(key for key, why in verdicts.items() if not why)
    return Window(kind=kind, after=after, last=max(verdicts), due=due, kept=kept)


def _verdicts(
    kind: Pruning,
    limits: Limits,
    *,
    after: uuid.UUID,
    upto: uuid.UUID,
    limit: int,
    using: str,
    held: Collection[uuid.UUID] | None = None,
) -> dict[uuid.UUID, str]:
    """Judge the ids; ``held`` are those that are locked: of an ordering key no event may go before one that stays."""
    params = {
        **limits.params(),
        "after": after,
        "upto": upto,
        "limit": limit,
        "held": None if held is None else list(held),
    }
    return {row["id"]: row["kept"] for row in run(f"prune/{kind}_due", params, using=using)}


def take(window: Window, limits: Limits, *, only: Sequence[uuid.UUID], limit: int, using: str) -> int | None:
    """Take ``only`` these of a window, less what others hold or have come to need; one transaction with its record.

    Returns:
        How many were taken; None when somebody held rows for too long, and nothing was taken.

    Raises:
        IntegrityError: A table of the project refers to one of the jobs by a constraint; nothing was taken.
    """
    try:
        return _take(window, limits, only, limit, using)
    except OperationalError as error:
        if not _is_busy(error):
            raise
        return None


def _take(window: Window, limits: Limits, only: Sequence[uuid.UUID], limit: int, using: str) -> int:
    nested = connections[using].in_atomic_block
    with transaction.atomic(using=using, durable=True):
        if connections[using].vendor == "postgresql" and not nested:
            with connections[using].cursor() as cursor:
                # Each look below must see what was committed before its locks were taken.
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        run("prune/begin", {}, using=using)
        held = _held(window.kind, only, using)
        again = _verdicts(
            window.kind, limits, after=window.after, upto=window.last, limit=limit, using=using, held=held
        )
        ids = [key for key in sorted(held) if again.get(key) == ""]
        if not ids:
            return 0
        record = {
            "stretch_id": uuid7(),
            "first": ids[0],
            "last": ids[-1],
            "many": len(ids),
            "finished_before": limits.finished_before(window.kind),
            "now": limits.now,
        }
        run(f"prune/{window.kind}", {"ids": ids, **record}, using=using)
    telemetry.emit(f"prune.{window.kind}", count=len(ids))
    return len(ids)


# What is locked by its own row alone. Of an event that is enough: nothing leaves a settled delivery, and who sends an
# event again locks the event first.
_ALONE: dict[Pruning, type[models.Model]] = {
    Pruning.KEYS: IdempotencyKey,
    Pruning.EVENTS: OutboxEvent,
    Pruning.MESSAGES: InboxMessage,
    Pruning.QUARANTINE: Quarantine,
    Pruning.REPLAYS: ReplayRequest,
}


def _held(kind: Pruning, ids: Sequence[uuid.UUID], using: str) -> set[uuid.UUID]:
    """Lock the rows that a batch is about; what another transaction holds is left out."""
    return _held_rows(_ALONE[kind], ids, using) if kind in _ALONE else _held_jobs(kind, ids, using)


def _held_rows(model: type[models.Model], ids: Sequence[uuid.UUID], using: str) -> set[uuid.UUID]:
    rows = model._default_manager.using(using).filter(pk__in=ids).order_by("pk")  # noqa: SLF001  Django's public door
    return set(rows.select_for_update(skip_locked=True).values_list("pk", flat=True))


def _held_jobs(kind: Pruning, ids: Sequence[uuid.UUID], using: str) -> set[uuid.UUID]:
    """Lock jobs with their effects and keys; a job of which another transaction holds anything is left out."""
    weak = kind is Pruning.CONTENT  # rows of the project that refer to a job may come and go meanwhile
    jobs = Job.objects.using(using).filter(pk__in=ids).order_by("pk")
    held = set(jobs.select_for_update(skip_locked=True, no_key=weak).values_list("pk", flat=True))
    effects = SideEffect.objects.using(using).filter(job_id__in=held).order_by("pk")
    locked = set(effects.select_for_update(skip_locked=True, no_key=weak).values_list("pk", flat=True))
    elsewhere = {owner for owner, effect in effects.values_list("job_id", "pk") if effect not in locked}
    keys = IdempotencyKey.objects.using(using).filter(pk__in=held)
    elsewhere |= set(keys.values_list("pk", flat=True)) - _held_rows(IdempotencyKey, sorted(held), using)
    return held - elsewhere


def _is_busy(error: OperationalError) -> bool:
    return getattr(error.__cause__, "sqlstate", None) in _BUSY or "locked" in str(error)


def take_duplicates(limits: Limits, *, limit: int, using: str) -> int:
    """Delete old rows of answered enqueues, at most ``limit``; returns how many."""
    params = {**limits.params(), "upto": first_id(limits.rows_before + SKEW), "limit": limit}
    return len(run("prune/duplicates", params, using=using))


def take_replay_items(limits: Limits, *, limit: int, using: str) -> int:
    """Delete what became of jobs of replay requests that ended long ago, at most ``limit``; returns how many."""
    return len(run("prune/replay_items", {"rows_before": limits.rows_before, "limit": limit}, using=using))


def take_workers(limits: Limits, *, limit: int, using: str) -> int:
    """Delete rows of workers that ended or fell silent long ago, at most ``limit``; returns how many."""
    return len(run("prune/workers", {"workers_before": limits.workers_before, "limit": limit}, using=using))


def take_ticks(limits: Limits, *, limit: int, using: str) -> int:
    """Delete old rows of ticks that are settled, at most ``limit``; returns how many."""
    params = {**limits.params(), "upto": first_id(limits.content_before + SKEW), "limit": limit}
    return len(run("prune/ticks", params, using=using))


def take_batches(limits: Limits, *, limit: int, using: str) -> int:
    """Delete old rows of closed batches whose members are gone, at most ``limit``; returns how many."""
    return len(run("prune/batches", _old_rows(limits, limit), using=using))


def take_chains(limits: Limits, *, limit: int, using: str) -> int:
    """Delete old chains whose jobs are gone, with their links, at most ``limit``; returns how many."""
    return len(run("prune/chains", _old_rows(limits, limit), using=using))


def _old_rows(limits: Limits, limit: int) -> dict[str, object]:
    return {"rows_before": limits.rows_before, "upto": first_id(limits.rows_before + SKEW), "limit": limit}
