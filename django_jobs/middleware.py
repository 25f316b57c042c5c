"""Middleware: the project's own code around each enqueue and around each attempt.

``DJANGO_JOBS["MIDDLEWARE"]`` names the classes, the outermost first.
"""

from __future__ import annotations

import json
import uuid
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from django_jobs.enqueue.hooked import Enqueueing

__all__ = ["Attempting", "Enqueueing", "Middleware"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempting:
    """What a middleware sees of an attempt that is about to run its handler.

    Args:
        job_id: The job: the same over all attempts and replays.
        attempt_id: This attempt.
        number: Of the attempt, from 1 over all generations.
        generation: Of the job: 1, and one more with each replay.
        job_type: Of the job.
        queue_name: From where it was taken.
        priority: From −100 to 100.
        tenant: What ``using(tenant=…)`` gave; empty without.
        subject: What the job is about; empty without.
        owner: Who answers for it.
        key: Its idempotency key; empty without.
        correlation_id: The story that it belongs to; its own id where it began one.
        database: The alias that holds the job.
    """

    job_id: uuid.UUID
    attempt_id: uuid.UUID
    number: int
    generation: int
    job_type: str
    queue_name: str
    priority: int
    tenant: str
    subject: str
    owner: str
    key: str
    correlation_id: str
    database: str
    _arguments: str | None = field(repr=False)

    @property
    def arguments(self) -> Any:
        """The stored arguments, as JSON gives them back; a change of them changes nothing."""
        return json.loads(self._arguments or "null")


class Middleware:
    """Base of middleware, made once per process, without arguments, and used by all threads.

    Each method returns a context manager that is entered before and left after what it is around, with the error if
    there is one; write it with ``contextlib.contextmanager``. It may raise. It cannot make a success of an error, run
    anything twice, leave it out, or change a result.
    """

    def around_enqueue(self, enqueueing: Enqueueing) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Return what is around one call that enqueues; what it raises before the jobs are stored refuses them."""
        return nullcontext()

    def around_attempt(self, attempt: Attempting) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Return what is around the handler, in its thread; what it raises is judged as if the handler had raised it.

        Around an atomic handler it is inside of its transaction.
        """
        return nullcontext()
