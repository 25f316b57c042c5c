"""How much waits in a queue, counted no further than somebody wants to know."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django_jobs.store.statements import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """``waiting`` jobs that are unfinished and neither run nor wait for a human; ``behind``: how long one is due."""

    waiting: int
    behind: timedelta


def queue_depth(queue_name: str, *, limit: int, using: str) -> Depth:
    """Count the jobs that wait in a queue, at most ``limit``; reads index entries only and locks nothing.

    ``behind`` is the longest time that one of the counted jobs has been due, zero when none is.
    """
    (row,) = run("queries/queue_depth", {"queue_name": queue_name, "limit": limit}, using=using)
    due = row["available_at"]
    behind = timedelta(0) if due is None else max(timedelta(0), row["now"] - due)
    return Depth(waiting=min(row["depth"], limit), behind=behind)
