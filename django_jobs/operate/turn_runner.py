"""Passing turns on that nobody has: whoever ended the job died before that, or was a person."""

from __future__ import annotations

import uuid

from django_jobs.store.turns import AT_ONCE, settle_turns, stale
from django_jobs.worker.chores import Chore


def pass_turns_on(*, using: str) -> int:
    """Give the turns of ended jobs to who is next; returns how many keys were looked at.

    Raises:
        DatabaseError: The database is away.
    """
    keys = stale(using=using)
    settle_turns(keys, using=using)
    return len(keys)


def _turn(worker_id: uuid.UUID, using: str) -> float | None:  # noqa: ARG001  as every chore
    """Look once; what a full look may have left is done soon."""
    return 0.5 if pass_turns_on(using=using) >= AT_ONCE else None


TURNS = Chore(name="turns", is_due=lambda using: bool(stale(using=using, limit=1)), turn=_turn)
