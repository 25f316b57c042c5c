"""The batch that jobs become members of while its block is open here."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import BatchError


@dataclass(slots=True, kw_only=True)
class Membership:
    """What was enqueued for a batch here: ``created`` members, and ``duplicates`` that are jobs of somebody else.

    ``is_later``: the batch is stored at the end of its async block, so nothing can become its member before.
    ``is_over``: the block has ended; a task that was started in it still has this in its context.
    """

    batch_id: uuid.UUID
    using: str
    is_later: bool = False
    is_over: bool = False
    created: int = 0
    duplicates: list[EnqueueResult] = field(default_factory=list)


_open: ContextVar[Membership | None] = ContextVar("django_jobs_open_batch", default=None)


@contextmanager
def joining(membership: Membership) -> Iterator[Membership]:
    """Make members of what this context enqueues on the batch's database during the block."""
    token = _open.set(membership)
    try:
        yield membership
    finally:
        membership.is_over = True
        _open.reset(token)


def _current() -> Membership | None:
    membership = _open.get()
    return None if membership is None or membership.is_over else membership


def open_batch(*, using: str, detached: bool = False) -> uuid.UUID | None:
    """Return the batch that a job becomes a member of; a detached one commits apart, and is nobody's member.

    Raises:
        BatchError: The block is an async one, in which nothing is stored yet.
    """
    membership = _current()
    if membership is None or membership.using != using or detached:
        return None
    if membership.is_later:
        msg = (
            "In an async block of a batch members are added by b.add(charge.prepare(order_id=7)); they are stored at "
            "its end. What is to be no member is enqueued before or after the block, or with detached=True."
        )
        raise BatchError(msg)
    return membership.batch_id


def is_open_here(batch_id: uuid.UUID) -> bool:
    """Say whether members are being added here: it cannot be closed meanwhile."""
    membership = _current()
    return membership is not None and membership.batch_id == batch_id


def note(result: EnqueueResult, *, detached: bool) -> None:
    """Count a member, or keep what is none because its key is held by another job."""
    membership = _current()
    if membership is None or detached or result.database != membership.using:
        return
    if result.created:
        membership.created += 1
    else:
        membership.duplicates.append(result)
