"""Many enqueues in one transaction, with one result per row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django_jobs import telemetry
from django_jobs.domain.options import EnqueueOptions
from django_jobs.enqueue.enqueue import Prepared, database_of, decide, prepare
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import PayloadError
from django_jobs.store.statements import joined


def enqueue_many(options: EnqueueOptions, rows: Iterable[Mapping[str, Any]]) -> list[EnqueueResult]:
    """Record one job per row, all or none; results come in the order of the rows.

    Everything is checked before the first statement. Equal rows of one key are folded: the first decides, others are
    its duplicates. Keys are taken in sorted order, so that two calls at once cannot deadlock. What a key decides is a
    result here, never an error: a conflict is, and so is a duplicate of a type with ``on_duplicate="reject"``, because
    one row of a thousand must not undo the others. Look at ``outcome``.

    Inside a caller's transaction there is no savepoint: an error of the database leaves that transaction to the caller.

    Raises:
        PayloadError: A row cannot be stored; the message gives its place. Nothing was stored.
    """
    prepared = [_prepare(options, place, row) for place, row in enumerate(rows)]
    if not prepared:
        return []
    results: dict[int, EnqueueResult] = {}
    first: dict[tuple[str, str, str], int] = {}
    with joined(database_of(options)):
        for place in sorted(range(len(prepared)), key=lambda index: (prepared[index].key, index)):
            item = prepared[place]
            known = first.setdefault((item.key_scope, item.key, item.fingerprint), place) if item.key else place
            results[place] = decide(item) if known == place else _folded(item, results[known])
    return [results[place] for place in range(len(prepared))]


def _prepare(options: EnqueueOptions, place: int, row: Mapping[str, Any]) -> Prepared:
    try:
        return prepare(options, row)
    except PayloadError as error:
        msg = f"Row {place}: {error}"
        raise type(error)(msg) from error


def _folded(item: Prepared, result: EnqueueResult) -> EnqueueResult:
    """Answer a row that equals an earlier one: a conflict remains one, everything else is held by the same job."""
    if result.outcome == "conflict":
        telemetry.emit("enqueue.conflict", job_id=result.id, job_type=item.options.job_type)
        return result
    telemetry.emit("enqueue.duplicate", job_id=result.id, job_type=item.options.job_type)
    return replace(result, outcome="duplicate")
