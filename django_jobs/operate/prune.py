"""Taking away what is old: content of finished jobs, their rows, expired keys; events, messages, quarantine, replays.

Never taken, whatever the settings say: a job that is not finished (a dead letter without a resolution included), an
effect whose outcome is open or waits for a human, a key that still answers, an effect that another job relies on or
that is being taken back, a job that took back what is still there, a send whose key a provider may remember, an event
with a delivery that is not settled (a dead one that nobody has discarded included), and a message that is still an
event here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import IntegrityError

from django_jobs import faults
from django_jobs.conf import get_settings
from django_jobs.domain.states import Pruning
from django_jobs.exceptions import DefinitionError
from django_jobs.operate.wording import counted
from django_jobs.store.prune import (
    START,
    Limits,
    Window,
    look,
    take,
    take_batches,
    take_chains,
    take_duplicates,
    take_replay_items,
    take_ticks,
    take_workers,
)
from django_jobs.store.times import read_now

BATCH = 500
LARGEST = 10_000
REFERRED = "referred"  # a table of the project refers to the job by a constraint
BUSY = "busy"  # somebody held rows of the batch

_WORDS: dict[str, tuple[str, str]] = {
    Pruning.CONTENT: ("the content of ", "job"),
    Pruning.JOBS: ("all rows of ", "job"),
    Pruning.KEYS: ("", "expired key"),
    Pruning.EVENTS: ("", "event"),
    Pruning.MESSAGES: ("", "remembered message"),
    Pruning.QUARANTINE: ("", "quarantined message"),
    Pruning.REPLAYS: ("", "replay request"),
}

WHY_KEPT: dict[str, str] = {
    "unresolved": "the outcome of one of its effects is open or waits for a human",
    "provider_key": "a provider may still remember the key of one of its sends",
    "audit": "something was found out about one of its effects less than KEEP_ROWS ago",
    "needed": "another job relies on one of its effects, or one of them is being taken back",
    "batch": "its batch is still open, and counts it when it is closed",
    REFERRED: "a table of your project refers to it by a database constraint",
    BUSY: "somebody was using its rows; the next run tries again",
}
WHY_EVENT_KEPT: dict[str, str] = {
    "undelivered": "one of its deliveries is neither published nor discarded",
    "order": "an earlier event of its ordering key stays",
    REFERRED: WHY_KEPT[REFERRED],
    BUSY: WHY_KEPT[BUSY],
}


def taken_text(kind: str, many: int) -> str:
    """Write how much of a kind was taken, or should be: "the content of 3 jobs"."""
    before, noun = _WORDS.get(kind, (f"{kind}: ", "row"))  # a record of another version is shown as well
    return before + counted(many, noun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What one run took (or, in a dry run, would take) from one database.

    ``kept`` counts, by a key of ``WHY_KEPT``, old finished jobs that stay, and ``kept_events``, by a key of
    ``WHY_EVENT_KEPT``, old events. ``complete`` is false when the time was up first; the next run goes on.
    """

    database: str
    dry_run: bool
    complete: bool
    seconds: float
    content: int
    jobs: int
    keys: int
    duplicates: int
    workers: int
    ticks: int
    batches: int
    chains: int
    events: int
    messages: int
    quarantine: int
    replays: int
    kept: Mapping[str, int]
    kept_events: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class _Run:
    using: str
    batch: int
    ends_at: float | None
    dry_run: bool
    limits: Limits
    taken: Counter[str] = field(default_factory=Counter)
    kept: dict[Pruning, Counter[str]] = field(default_factory=dict)

    @property
    def time_is_up(self) -> bool:
        return self.ends_at is not None and time.monotonic() >= self.ends_at


def prune(*, using: str, batch: int = BATCH, max_seconds: float | None = None, dry_run: bool = False) -> Pruned:
    """Take what is older than the settings ``KEEP_…`` say, in short transactions of at most ``batch`` rows of a kind.

    It may be ended at any moment and started again, and several may run at once: each batch is taken whole, with its
    record, or not at all. ``max_seconds`` ends the run after the batch that is under way. A dry run changes nothing.

    Raises:
        DefinitionError: ``batch`` or ``max_seconds`` cannot be.
    """
    _check(batch, max_seconds)
    started = time.monotonic()
    run = _Run(
        using=using,
        batch=batch,
        ends_at=None if max_seconds is None else started + max_seconds,
        dry_run=dry_run,
        limits=limits_now(using=using),
    )
    # A request may have very many items: they go before it, in batches of their own.
    complete = all(
        [_rest(run, "replay_items", take_replay_items)]
        + [_walk(run, kind) for kind in Pruning]
        + [_rest(run, *item) for item in _RESTS]
    )
    return Pruned(
        database=using,
        dry_run=dry_run,
        complete=complete,
        seconds=time.monotonic() - started,
        **{name: run.taken[name] for name in (*Pruning, *(name for name, _ in _RESTS))},
        # A job that keeps its content keeps its rows, and is counted once.
        kept=dict(run.kept.get(Pruning.CONTENT, Counter()) | run.kept.get(Pruning.JOBS, Counter())),
        kept_events=dict(run.kept.get(Pruning.EVENTS, Counter())),
    )


def _check(batch: int, max_seconds: float | None) -> None:
    if not 1 <= batch <= LARGEST:
        msg = f"A batch has from 1 to {LARGEST} jobs, not {batch!r}: it is one transaction."
        raise DefinitionError(msg)
    if max_seconds is not None and not max_seconds > 0:
        msg = f"The time of a run must be more than 0 seconds, not {max_seconds!r}."
        raise DefinitionError(msg)


def limits_now(*, using: str) -> Limits:
    """Return what is old now, by the settings and the database's clock."""
    now, rules = read_now(using), get_settings()
    return Limits(
        now=now,
        content_before=now - rules.keep_content,
        dead_before=now - rules.keep_dead_content,
        rows_before=now - rules.keep_rows,
        workers_before=now - rules.keep_workers,
        events_before=now - rules.keep_events,
        quarantine_before=now - rules.keep_quarantine,
    )


def _walk(run: _Run, kind: Pruning) -> bool:
    """Go through all old ids once, in order; returns whether the end was reached."""
    after = START
    while not run.time_is_up:
        run.limits = limits_now(using=run.using)
        window = look(kind, run.limits, after=after, limit=run.batch, using=run.using)
        if window is None:
            return True
        run.kept.setdefault(kind, Counter()).update(window.kept)
        if window.due and run.dry_run:
            run.taken[kind] += len(window.due)
        elif window.due:
            taken = _take(run, window, window.due)
            run.taken[kind] += taken
            if taken:
                faults.reached("prune.between_batches", using=run.using)
        after = window.last
    return False


def _take(run: _Run, window: Window, ids: Sequence[UUID]) -> int:
    """Take the ids; when a constraint of the project forbids it, find out for which of them by halving."""
    try:
        taken = take(window, run.limits, only=ids, limit=run.batch, using=run.using)
    except IntegrityError:
        if len(ids) == 1:
            run.kept[window.kind][REFERRED] += 1
            return 0
        middle = len(ids) // 2
        return _take(run, window, ids[:middle]) + _take(run, window, ids[middle:])
    left = len(ids) - (taken or 0)
    if left:
        run.kept[window.kind][BUSY] += left
    return taken or 0


def _rest(run: _Run, name: str, take_some: Callable[..., int]) -> bool:
    if run.dry_run:
        return True
    while not run.time_is_up:
        taken = take_some(run.limits, limit=run.batch, using=run.using)
        run.taken[name] += taken
        if taken:
            faults.reached("prune.between_batches", using=run.using)
        if taken < run.batch:
            return True
    return False


_RESTS: tuple[tuple[str, Callable[..., int]], ...] = (
    ("duplicates", take_duplicates),
    ("workers", take_workers),
    ("ticks", take_ticks),
    ("batches", take_batches),
    ("chains", take_chains),
)
