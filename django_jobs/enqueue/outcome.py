"""What an enqueue did."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from asgiref.sync import sync_to_async

from django_jobs.enqueue.result import JobResult, await_end, read, wait

OutcomeName = Literal["created", "duplicate", "created_after_expiry", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueResult:
    """The job that now stands for these arguments.

    ``outcome`` is ``created``, ``duplicate`` (a live key answered with its job; nothing was stored),
    ``created_after_expiry`` (the key had expired; a new job holds it) or, from ``enqueue_many`` only, ``conflict``.
    ``state`` is the job's state as it was read (when the job was pruned and only its key is left: its last one),
    ``resolution`` how a dead letter was settled. ``version_differs`` marks a duplicate whose arguments were recorded
    under another payload version and could not be compared. ``database`` is the alias on which it is stored.
    """

    id: uuid.UUID
    outcome: OutcomeName
    state: str
    resolution: str | None = None
    version_differs: bool = False
    database: str = "default"

    @property
    def created(self) -> bool:
        """Whether this call stored a new job."""
        return self.outcome in {"created", "created_after_expiry"}

    def refresh(self) -> JobResult:
        """Read what has become of the job: its state, progress, last error and result.

        Raises:
            ResultGoneError: It was pruned, or its transaction was rolled back.
        """
        return read(self.id, using=self.database)

    async def arefresh(self) -> JobResult:
        """Do what :meth:`refresh` does, from async code."""
        return await sync_to_async(self.refresh, thread_sensitive=True)()

    def get(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end of the job and return its result; ``timeout`` in seconds, None for as long as it takes.

        Raises:
            JobFailedError: It became a dead letter, or was cancelled.
            ResultTimeoutError: It has not ended in time; it goes on.
            ResultGoneError: It was pruned, or its transaction was rolled back.
            WouldWaitForeverError: A transaction is open here, or this is a handler.
        """
        return wait(self.id, using=self.database, timeout=timeout)

    async def aget(self, timeout: float | timedelta | None = None) -> Any:  # noqa: ASYNC109  as get()
        """Do what :meth:`get` does, from async code."""
        return await await_end(self.id, using=self.database, timeout=timeout)
