"""Looks at what should have been pruned by now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from django_jobs.domain.states import Pruning
from django_jobs.models import PrunedStretch
from django_jobs.operate.finding import Finding, Look, Surroundings, warning
from django_jobs.operate.prune import limits_now, taken_text
from django_jobs.operate.wording import instant
from django_jobs.store.prune import START, look

PATIENCE = timedelta(days=7)  # a weekly run is often enough
LOOKED_AT = 1000
_LOOKED_FOR = tuple(kind for kind in Pruning if kind is not Pruning.KEYS)


def retention_looks() -> tuple[Look, ...]:
    """Return the looks at old rows."""
    return (_not_pruned,)


def _not_pruned(around: Surroundings) -> Iterator[Finding]:
    limits = limits_now(using=around.using)
    overdue = replace(
        limits,
        now=limits.now - PATIENCE,
        content_before=limits.content_before - PATIENCE,
        dead_before=limits.dead_before - PATIENCE,
        rows_before=limits.rows_before - PATIENCE,
        events_before=limits.events_before - PATIENCE,
        quarantine_before=limits.quarantine_before - PATIENCE,
    )
    found = []
    for kind in _LOOKED_FOR:
        window = look(kind, overdue, after=START, limit=LOOKED_AT, using=around.using)
        if window is not None and window.due:
            found.append(taken_text(kind, len(window.due)))
    if found:
        newest = PrunedStretch.objects.using(around.using).order_by("-created_at").first()
        last = f"something was removed last at {instant(newest.created_at)}" if newest else "nothing ever was removed"
        yield warning(
            "not-pruned",
            f"Of the {LOOKED_AT} oldest each, these should have gone more than {PATIENCE.days} days ago: "
            f"{', '.join(found)}; {last}.",
            "Run 'manage.py jobs prune' regularly, for example every night.",
        )
