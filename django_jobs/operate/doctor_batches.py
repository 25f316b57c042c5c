"""Looks at batches: those that a dead letter keeps open, and those that nobody closes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django_jobs.operate.finding import Finding, Look, Surroundings, some, warning
from django_jobs.operate.wording import counted
from django_jobs.store.batches import held_by_dead_letters, to_look_at

LATE = timedelta(minutes=1)


def batch_looks() -> tuple[Look, ...]:
    """Return the looks at batches."""
    return (_held_open, _not_closed)


def _held_open(around: Surroundings) -> Iterator[Finding]:
    held = held_by_dead_letters(using=around.using)
    if held:
        told = [f"{row.pk} ({row.owner or 'no owner'})" for row in held]
        yield warning(
            "batch-waits-for-dead-letter",
            f"{counted(len(held), 'batch', 'batches')} stay open because of dead letters: {some(told)}.",
            "Replay the dead letters or settle them ('manage.py jobs batches ID' names them); what follows comes then.",
        )


def _not_closed(around: Surroundings) -> Iterator[Finding]:
    late = to_look_at(before=around.now - LATE, using=around.using)
    held = {row.pk for row in held_by_dead_letters(using=around.using)}
    left = [str(pk) for pk in late if pk not in held]
    if left:
        yield warning(
            "batch-not-closed",
            f"All members of these batches have ended, and nobody closes them: {some(left)}.",
            "Start a worker: each of them looks every few seconds.",
        )
