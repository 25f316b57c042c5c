"""A batch as it stands: what whoever enqueued it, or its id, reads of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

from asgiref.sync import sync_to_async

from django_jobs.domain.ids import checked_id
from django_jobs.enqueue.closing import ENDS, state_of
from django_jobs.enqueue.database import database_named
from django_jobs.exceptions import ResultGoneError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """A batch as it stood when it was read; nothing here changes by itself.

    Args:
        id: The batch.
        database: The alias on which it is stored.
        outcome: ``created`` by this call, ``duplicate`` when its key answered, ``read`` by :meth:`refresh`.
        state: open or closed.
        open: Members that wait or run.
        succeeded: Members that succeeded.
        cancelled: Members that were cancelled.
        resolved: Members that were dead letters and that somebody settled.
        dead: Members that are dead letters and wait for a human.
        callback_job_id: The job that followed; None before the batch is closed, or without one.
    """

    id: uuid.UUID
    database: str
    outcome: Literal["created", "duplicate", "read"]
    state: str
    open: int
    succeeded: int
    cancelled: int
    resolved: int
    dead: int
    callback_job_id: uuid.UUID | None

    @property
    def total(self) -> int:
        """All members."""
        return self.open + self.succeeded + self.cancelled + self.resolved + self.dead

    @property
    def is_closed(self) -> bool:
        """Whether all members have ended; what follows is enqueued then. The counts are those of that moment."""
        return self.state == "closed"

    def refresh(self) -> BatchResult:
        """Read how the batch stands now.

        Raises:
            ResultGoneError: It was pruned, or never committed.
        """
        return read(self.id, using=self.database)

    async def arefresh(self) -> BatchResult:
        """Do what :meth:`refresh` does, from async code."""
        return await sync_to_async(self.refresh, thread_sensitive=True)()


def batch_result(batch_id: uuid.UUID | str, *, database: str | None = None) -> BatchResult:
    """Read a batch by its id, for example one that a former request made.

    Raises:
        ResultGoneError: There is no such batch, or it was pruned.
        DefinitionError: This is no id, or the settings have no such database.
    """
    found = checked_id(batch_id, what="batch")
    return read(found, using=database_named(database))


def read(batch_id: uuid.UUID, *, using: str, outcome: Literal["created", "duplicate", "read"] = "read") -> BatchResult:
    """Read a batch where it is written.

    Raises:
        ResultGoneError: There is no such batch.
    """
    found = state_of(batch_id, using=using)
    if found is None:
        msg = f"There is no batch {batch_id} on database {using!r}: it never committed, or was pruned."
        raise ResultGoneError(msg)
    row, members = found
    return BatchResult(
        id=batch_id,
        database=using,
        outcome=outcome,
        state="open" if row.closed_at is None else "closed",
        open=members.open,
        callback_job_id=row.callback_job_id,
        **{name: getattr(members, name) for name in ENDS},
    )
