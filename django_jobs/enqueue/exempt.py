"""Enqueues that a full queue never refuses: what the package itself has promised to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_jobs import telemetry
from django_jobs.domain.options import EnqueueOptions
from django_jobs.enqueue.enqueue import answered, check_call
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.prepared import encode


def enqueue_exempt(options: EnqueueOptions, arguments: Mapping[str, Any]) -> EnqueueResult:
    """Record a job as :func:`~django_jobs.enqueue.enqueue.enqueue` does, without asking whether its queue has room.

    Raises:
        PayloadError: The arguments cannot be stored.
        IdempotencyConflictError: The key is live with other arguments.
    """
    prepared = encode(options, arguments, check_call(options))
    telemetry.emit("enqueue.exempt", queue_name=options.queue_name, count=1)
    return answered(prepared)
