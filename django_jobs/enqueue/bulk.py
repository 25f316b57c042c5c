"""Many enqueues in one transaction, by one statement per thousand rows, with one result per row."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

from django.db import connections, transaction

from django_jobs.domain.ids import uuid7
from django_jobs.domain.options import EnqueueOptions
from django_jobs.enqueue.backpressure import admit
from django_jobs.enqueue.enqueue import (
    TRIES,
    answer,
    check_call,
    contended,
    count,
    new_job,
    tell_duplicate_of_dead,
)
from django_jobs.enqueue.hooked import captured, carrying, hooked
from django_jobs.enqueue.outcome import EnqueueResult, OutcomeName
from django_jobs.enqueue.prepared import Prepared, encode
from django_jobs.exceptions import PayloadError
from django_jobs.store import enqueue_many as store_jobs
from django_jobs.store.brief import briefly
from django_jobs.store.keys import KeyHolder, key_holders, note_duplicates
from django_jobs.store.times import read_now

CHUNK = 1000


@dataclass(slots=True)
class _Group:
    """The rows of one key (or a single one without a key), by place; the first of them leads and is stored."""

    lead: Prepared
    places: list[int]
    job_id: uuid.UUID
    replaces: uuid.UUID | None = None
    stored: EnqueueResult | None = None
    holder: KeyHolder | None = None


def enqueue_many(options: EnqueueOptions, rows: Iterable[Mapping[str, Any]]) -> list[EnqueueResult]:
    """Record one job per row, all or none; results come in the order of the rows.

    Everything is checked before the first statement. Equal rows of one key are folded: the first decides, others are
    its duplicates. Keys are taken in sorted order, so that two calls at once cannot deadlock. What a key decides is a
    result here, never an error: a conflict is, and so is a duplicate of a type with ``on_duplicate="reject"``, because
    one row of a thousand must not undo the others. Look at ``outcome``.

    Memory holds the canonical text of every row, because all are checked first; statements carry ``CHUNK`` rows each.
    Inside a caller's transaction there is no savepoint: an error of the database leaves that transaction to the caller.

    Raises:
        PayloadError: A row cannot be stored; the message gives its place. Nothing was stored.
        QueueFullError: The queue has no room for all rows that need a job. Nothing was stored.
        HookError: A propagator failed, or what it captured cannot be stored.
        EnqueueContendedError: A key changed hands faster than it could be read. A transaction of the caller can only be
            rolled back then, because other rows are stored in it.
    """
    using = check_call(options)
    batch = [_encoded(options, place, row, using) for place, row in enumerate(rows)]
    if not batch:
        return []
    with hooked(batch) as answers:
        context = captured()
        groups = _grouped(batch, context)
        admit([group.lead for group in groups])
        with briefly(using):
            _decide(groups, using)
            results = _results(batch, groups, using)
        answers.extend(results)
    return results


def _encoded(options: EnqueueOptions, place: int, row: Mapping[str, Any], using: str) -> Prepared:
    try:
        return encode(options, row, using)
    except PayloadError as error:
        msg = f"Row {place}: {error}"
        raise type(error)(msg) from error


def _grouped(batch: Sequence[Prepared], context: str | None) -> list[_Group]:
    """Fold rows of one key, in the order in which keys are taken; ids rise in the order of the rows."""
    groups: dict[object, _Group] = {}
    for place, item in enumerate(batch):
        group = groups.get(item.key or place)
        if group is None:
            groups[item.key or place] = _Group(lead=carrying(item, context), places=[place], job_id=uuid7())
        else:
            group.places.append(place)
    return sorted(groups.values(), key=lambda group: (group.lead.key, group.places[0]))


def _decide(groups: list[_Group], using: str) -> None:
    """Store each group's first row, or find out who holds its key.

    All free keys are tried before the first expired one is taken over, each in sorted order: every call locks keys in
    this order, so no two wait for each other crosswise.
    """
    undecided = groups
    # Jobs of a serial key run in the order of the rows: all are enqueued at one instant, and ids decide.
    now = read_now(using) if any(group.lead.serial_key for group in groups) else None
    for _ in range(TRIES):
        _store([group for group in undecided if group.replaces is None], using, now)
        _store([group for group in undecided if group.replaces is not None], using, now)
        undecided = [group for group in undecided if group.stored is None]
        _look(undecided, using)
        undecided = [group for group in undecided if group.holder is None]
        if not undecided:
            return
    if connections[using].in_atomic_block:  # else the caller alone can roll back
        transaction.set_rollback(True, using=using)  # a part is stored: all or none
    raise contended(undecided[0].lead.options)


def _store(groups: Sequence[_Group], using: str, now: datetime | None) -> None:
    for chunk in _chunks(groups):
        news = [new_job(group.lead, group.job_id, group.replaces) for group in chunk]
        states = store_jobs(news, using=using, now=now)
        for group in chunk:
            if group.job_id in states:
                outcome: OutcomeName = "created" if group.replaces is None else "created_after_expiry"
                group.stored = EnqueueResult(
                    id=group.job_id, outcome=outcome, state=states[group.job_id], database=using
                )


def _look(groups: Sequence[_Group], using: str) -> None:
    """Read who holds the keys: a live one answers, an expired one is taken over in the next round, a free one tried."""
    for chunk in _chunks(groups):
        holders = key_holders(chunk[0].lead.key_scope, [group.lead.key for group in chunk], using=using)
        for group in chunk:
            holder = holders.get(group.lead.key)
            group.holder = holder if holder and holder.is_live else None
            group.replaces = holder.job_id if holder and not holder.is_live else None


def _chunks(groups: Sequence[_Group]) -> Iterator[Sequence[_Group]]:
    for start in range(0, len(groups), CHUNK):
        yield groups[start : start + CHUNK]


def _results(batch: Sequence[Prepared], groups: Sequence[_Group], using: str) -> list[EnqueueResult]:
    results: dict[int, EnqueueResult] = {}
    for group in groups:
        results |= {place: _result(batch[place], group, leads=place == group.places[0]) for place in group.places}
    _note(results, groups, using)
    ordered = [results[place] for place in range(len(batch))]
    for item, result in zip(batch, ordered, strict=True):
        count(item.options, result)
    return ordered


def _result(item: Prepared, group: _Group, *, leads: bool) -> EnqueueResult:
    if group.holder is not None:
        return answer(item, group.holder)
    stored = cast("EnqueueResult", group.stored)  # one of the two is set when all are decided
    if leads:
        return stored
    same = item.fingerprint == group.lead.fingerprint
    return replace(stored, outcome="duplicate" if same else "conflict")


def _note(results: Mapping[int, EnqueueResult], groups: Sequence[_Group], using: str) -> None:
    """Keep one row per older job that answered, and tell the owners of dead letters."""
    answered = [
        group
        for group in groups
        if group.holder is not None and any(results[place].outcome == "duplicate" for place in group.places)
    ]
    for chunk in _chunks(answered):
        holders = [group.holder for group in chunk if group.holder is not None]
        for job_id in note_duplicates({holder.job_id: holder.waits_for_human for holder in holders}, using=using):
            tell_duplicate_of_dead(chunk[0].lead, job_id)
