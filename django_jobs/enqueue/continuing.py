"""Jobs that carry on what was accepted before, such as a compensation: no full queue refuses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django_jobs import telemetry
from django_jobs.domain.ids import uuid7
from django_jobs.domain.options import EnqueueOptions
from django_jobs.enqueue.enqueue import new_job
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.enqueue.prepared import encode
from django_jobs.models import Job, JobPayload
from django_jobs.store import enqueue as store_job


def enqueue_for(
    origin: Job, options: EnqueueOptions, arguments: Mapping[str, Any], *, using: str
) -> EnqueueResult | None:
    """Record a job on behalf of another one, in the transaction that is open: it goes on in the story of ``origin``.

    It gets the correlation, the trace, the owner, the subject, the queue and the priority of ``origin``, and carries
    what ``origin`` does; it is exempt from back-pressure, and is counted.

    Returns:
        The new job; None when its key was taken, and nothing was stored.

    Raises:
        PayloadError: The arguments cannot be stored.
    """
    same = replace(
        options,
        queue_name=origin.queue_name,
        priority=origin.priority,
        tenant=origin.tenant,
        owner=origin.owner,
        subject=origin.subject,
        literal=options.literal | {"subject"},
    )
    prepared = encode(same, arguments, using)
    new = replace(
        new_job(prepared, uuid7(), None),
        correlation_id=origin.correlation_id or str(origin.pk),
        traceparent=origin.traceparent,
        context=_context_of(origin, using=using),
    )
    state = store_job(new, using=using)
    if state is None:
        return None
    telemetry.emit("enqueue.exempt", queue_name=same.queue_name, count=1)
    return EnqueueResult(id=new.job_id, outcome="created", state=state, database=using)


def _context_of(origin: Job, *, using: str) -> str | None:
    return JobPayload.objects.using(using).filter(pk=origin.pk).values_list("context", flat=True).first()
