"""What became of a job, for the code that enqueued it."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async

from django_jobs.domain.ids import checked_id
from django_jobs.domain.states import JobState
from django_jobs.enqueue.database import database_named
from django_jobs.exceptions import (
    JobFailedError,
    ResultGoneError,
    ResultTimeoutError,
)
from django_jobs.models import Job

_FINISHED = {JobState.SUCCEEDED.value, JobState.DEAD_LETTERED.value, JobState.CANCELLED.value}
_COLUMNS = (
    *("id", "job_type", "state", "resolution", "dead_reason", "fence", "progress", "progress_total"),
    *("error_class", "error_type", "created_at", "finished_at", "content_removed_at"),
    *("payload__result", "payload__error_text"),
)


class Followed:
    """What stands for a job and can be asked what has become of it; a subclass has ``id`` and ``database``."""

    __slots__ = ()

    id: uuid.UUID
    database: str

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
            OperationalError: The database does not answer, and the time is over; until then it is asked again.
        """
        from django_jobs.enqueue.waiting import wait

        return wait(self.id, using=self.database, timeout=timeout)

    async def aget(self, timeout: float | timedelta | None = None) -> Any:  # noqa: ASYNC109  as get()
        """Do what :meth:`get` does, from async code."""
        from django_jobs.enqueue.waiting import await_end

        return await await_end(self.id, using=self.database, timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult(Followed):
    """A job as it stood when it was read; nothing here changes by itself.

    Args:
        id: The job.
        database: The alias on which it is stored.
        state: scheduled, queued, running, failed (another attempt is due), succeeded, dead_lettered or cancelled.
        resolution: How a dead letter was settled; None while it is open.
        dead_reason: Why it became a dead letter; empty if it did not.
        attempts: How many attempts it has had, over all replays.
        progress: What the running attempt told last; None before it tells.
        progress_total: Out of how much, if it said so.
        error_class: permanent, transient or unknown: the class of its last failure.
        error_type: The class of what the last failed attempt met.
        error: Its message, with secrets masked.
        result: What the handler left as its result, as JSON gives it back; None without one.
    """

    id: uuid.UUID
    database: str
    job_type: str
    state: str
    resolution: str | None
    dead_reason: str
    attempts: int
    progress: int | None
    progress_total: int | None
    error_class: str
    error_type: str
    error: str
    result: Any
    enqueued_at: datetime
    finished_at: datetime | None
    content_removed: bool

    @property
    def is_finished(self) -> bool:
        """Whether it runs no more unless somebody replays it."""
        return self.state in _FINISHED

    def value(self) -> Any:
        """Return the result of a job that succeeded.

        Raises:
            JobFailedError: It is a dead letter, or was cancelled.
            ResultGoneError: Its result was removed by the retention of its content.
            ResultTimeoutError: It has not ended yet.
        """
        if not self.is_finished:
            msg = f"Job {self.id} ({self.job_type}) has not ended: it is {self.state}."
            raise ResultTimeoutError(msg)
        if self.state != JobState.SUCCEEDED:
            raise JobFailedError(self._told(), result=self)
        if self.content_removed:
            msg = f"Job {self.id} succeeded; its result was removed with its content."
            raise ResultGoneError(msg)
        return self.result

    def _told(self) -> str:
        if self.state == JobState.CANCELLED:
            return f"Job {self.id} ({self.job_type}) was cancelled."
        error = f": {self.error_type}: {self.error}" if self.error_type else ""
        return f"Job {self.id} ({self.job_type}) is a dead letter ({self.dead_reason}){error}"


def job_result(job_id: uuid.UUID | str, *, database: str | None = None) -> JobResult:
    """Read a job by its id, for example one that a former request enqueued.

    Args:
        job_id: As ``enqueue`` returned it, or its text.
        database: Where it is stored; default: where the router writes.

    Raises:
        ResultGoneError: There is no such job, or it was pruned.
        DefinitionError: This is no id, or the settings have no such database.
    """
    using = database_named(database)
    found = checked_id(job_id, what="job")
    return read(found, using=using)


def read(job_id: uuid.UUID, *, using: str) -> JobResult:
    """Read a job where it is written, so that a replica that lags cannot hide its end.

    Raises:
        ResultGoneError: There is no such job, or it was pruned.
    """
    row = Job.objects.using(using).filter(pk=job_id).values(*_COLUMNS).first()
    if row is None:
        msg = f"There is no job {job_id} on database {using!r}: it never committed, or was pruned."
        raise ResultGoneError(msg)
    stored = row.pop("payload__result")
    return JobResult(
        database=using,
        attempts=row.pop("fence"),
        error=row.pop("payload__error_text") or "",
        result=None if stored is None else json.loads(stored),
        enqueued_at=row.pop("created_at"),
        content_removed=row.pop("content_removed_at") is not None,
        **row,
    )
