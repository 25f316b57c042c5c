"""The batch of the member that is running here: it can add members before it ends itself."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from django_jobs.enqueue.batch_results import BatchResult, read
from django_jobs.enqueue.calls import Call
from django_jobs.enqueue.inside import check_place, current
from django_jobs.enqueue.members import add
from django_jobs.enqueue.membership import Membership, joining
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import BatchClosedError, BatchError
from django_jobs.store.batches import is_closed


@dataclass(frozen=True, slots=True, kw_only=True)
class OfMember:
    """The batch of the member that is running here."""

    id: uuid.UUID
    database: str

    def add(self, *calls: Call) -> list[EnqueueResult]:
        """Enqueue prepared calls as further members, in the transaction that commits with this member's own end.

        Raises:
            BatchClosedError: It is closed: this member was replayed after that.
            OutsideCompletionError: Neither in ``complete()``, nor in ``step()``, nor in an atomic handler.
            IdempotencyConflictError: A key is live with other arguments.
        """
        inside = current.get()
        if inside is None or not inside.commits_with_success:
            check_place(what="batch.add()", using=self.database, detached=False)
            msg = "A member adds members in complete(), step() or an atomic handler only."
            raise BatchError(msg)
        if is_closed(self.id, using=self.database):
            msg = f"Batch {self.id} is closed; this member was replayed after that. Make another batch."
            raise BatchClosedError(msg, batch_id=self.id)
        with joining(Membership(batch_id=self.id, using=self.database)):
            return add(calls, using=self.database)

    def refresh(self) -> BatchResult:
        """Read how the batch stands now."""
        return read(self.id, using=self.database)
