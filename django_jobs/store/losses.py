"""Losses: find jobs whose holder is gone, and take them back by their attempt id."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Exists, OuterRef

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone, DeadReason, LossCause
from django_jobs.models import Attempt, Job, Worker
from django_jobs.store.endings import counter_params
from django_jobs.store.leases import Held
from django_jobs.store.statements import run
from django_jobs.store.times import read_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """A running job whose holder seems gone, with all that a verdict needs."""

    job_id: uuid.UUID
    attempt_id: uuid.UUID
    number: int
    using: str
    job_type: str
    owner: str
    worker_name: str
    alone: Alone
    counters: Counters
    age: timedelta
    useful_left: timedelta | None
    cause: LossCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The verdict: counters after counting it, and either a delay or a reason to stop."""

    cause: LossCause
    counters: Counters
    delay: timedelta
    dead_reason: DeadReason | None
    exit_status: int | None = None
    message: str = ""


def held_by(*, worker_id: uuid.UUID, child: int, using: str) -> list[Abandoned]:
    """Return the running jobs of one child; call it when the child's death was seen."""
    jobs = Job.objects.using(using).filter(state="running", lease_owner=worker_id, lease_child=child)
    return _with_attempts(jobs, LossCause.EXIT, using)


def abandoned(*, using: str, limit: int = 500) -> list[Abandoned]:
    """Return running jobs whose worker is silent or stopped, then those whose lease has been over for the patience."""
    rules = get_settings()
    now = read_now(using)
    running = Job.objects.using(using).filter(state="running")
    alive = Worker.objects.using(using).filter(
        pk=OuterRef("lease_owner"), stopped_at__isnull=True, heartbeat_at__gt=now - rules.silent_after
    )
    silent = running.filter(~Exists(alive)).order_by("id")[:limit]
    expired = running.filter(Exists(alive), lease_expires_at__lt=now - rules.expired_patience).order_by("id")[:limit]
    return [
        *_with_attempts(silent, LossCause.SILENT, using, now=now),
        *_with_attempts(expired, LossCause.EXPIRED, using, now=now),
    ]


def _with_attempts(
    jobs: Iterable[Job], cause: LossCause, using: str, *, now: datetime | None = None
) -> list[Abandoned]:
    found = list(jobs)
    if not found:
        return []
    now = now or read_now(using)
    attempts = Attempt.objects.using(using).in_bulk([job.attempt_id for job in found])
    return [
        _abandoned(job, held, attempts.get(held), cause=cause, using=using, now=now)
        for job in found
        if (held := job.attempt_id) is not None
    ]


def _abandoned(
    job: Job, attempt_id: uuid.UUID, attempt: Attempt | None, *, cause: LossCause, using: str, now: datetime
) -> Abandoned:
    return Abandoned(
        job_id=job.pk,
        attempt_id=attempt_id,
        number=job.fence,
        using=using,
        job_type=job.job_type,
        owner=job.owner,
        worker_name=attempt.worker_name if attempt else "",
        alone=Alone(attempt.alone) if attempt else Alone.NO,
        counters=counters_of_job(job),
        age=now - job.generation_started_at,
        useful_left=None if job.useful_until is None else job.useful_until - now,
        cause=cause,
    )


def counters_of_job(job: Job) -> Counters:
    """Read the job's counters of this generation."""
    return Counters(
        unknown=job.unknown_count,
        transient=job.transient_count,
        lost=job.lost_count,
        free=job.free_count,
        exit_lost=job.exit_lost_count,
        silent_lost=job.silent_lost_count,
        unchanged=job.unchanged_count,
    )


def rescue(held: Held, *, loss: Loss) -> bool:
    """Take the job back from a holder that is gone.

    Returns:
        False when nothing changed: another reaper was first, the holder came back, or it is completing right now.
    """
    rules = get_settings()
    params: dict[str, Any] = {
        **counter_params(loss.counters),
        "job_id": held.job_id,
        "attempt_id": held.attempt_id,
        "cause": loss.cause.value,
        "exit_status": loss.exit_status,
        "delay": loss.delay,
        "dead_reason": loss.dead_reason.value if loss.dead_reason else "",
        "message": loss.message,
        "silent_after": rules.silent_after,
        "expired_patience": rules.expired_patience,
        "notify": rules.notify,
    }
    rows = run("rescue", params, using=held.using)
    if not rows:
        return False
    telemetry.emit("job.rescue", job_id=held.job_id, attempt_id=held.attempt_id, cause=loss.cause.value)
    if loss.dead_reason:
        telemetry.emit("job.dead", job_id=held.job_id, reason=loss.dead_reason.value)
    return True
