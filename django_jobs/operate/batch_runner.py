"""Closing the batches that nobody has closed: whoever ended the last member died, or was no worker."""

from __future__ import annotations

import logging
import uuid

from django.db import InterfaceError, InternalError, OperationalError, connections

from django_jobs.enqueue.closing import close_batch
from django_jobs.masking import described
from django_jobs.store.batches import AT_ONCE, to_look_at
from django_jobs.worker.chores import Chore

logger = logging.getLogger("django_jobs.batches")

TRANSIENT = (OperationalError, InterfaceError, InternalError)


def close_batches(*, using: str) -> int:
    """Close what can be closed, and tell the owners of what dead letters keep open; returns how many are closed.

    Raises:
        DatabaseError: The database is away.
    """
    closed = 0
    for batch_id in to_look_at(using=using):
        try:
            closed += close_batch(batch_id, using=using)
        except TRANSIENT as error:
            if not connections[using].is_usable():
                raise
            logger.warning("Batch %s is closed later: %s", batch_id, described(error).message)
        except Exception:
            logger.exception("Batch %s could not be closed", batch_id)
    return closed


def _turn(worker_id: uuid.UUID, using: str) -> float | None:  # noqa: ARG001  as every chore
    """Look once; what a full look may have left is done at once."""
    return 0.5 if close_batches(using=using) >= AT_ONCE else None


BATCHES = Chore(name="batches", is_due=lambda using: bool(to_look_at(limit=1, using=using)), turn=_turn)
