"""Losses: find jobs whose holder is gone, and take them back by their attempt id."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone, DeadReason, LossCause
from django_jobs.models import Attempt, Job, Worker
from django_jobs.store.cancels import heed_request
from django_jobs.store.endings import counter_params
from django_jobs.store.leases import Held, told_of
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
    extra_attempts: int
    age: timedelta
    useful_left: timedelta | None
    cause: LossCause
    error_fingerprint: str
    lease_left: timedelta  # at the moment of the look; below zero when the lease is over
    stopping: bool  # its worker had been asked to stop
    queue_name: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The verdict: counters after counting it, and either a delay or a reason to stop."""

    cause: LossCause
    counters: Counters
    delay: timedelta
    dead_reason: DeadReason | None
    exit_status: int | None = None
    message: str = ""


class Page(NamedTuple):
    """How far a look through all lost attempts has come: the last job id seen of each kind."""

    silent: uuid.UUID | None = None
    expired: uuid.UUID | None = None

    def past(self, item: Abandoned) -> Page:
        """Return the place after ``item``."""
        return self._replace(**{"silent" if item.cause is LossCause.SILENT else "expired": item.job_id})


def held_by(*, worker_id: uuid.UUID, child: int, using: str, on_purpose: bool = False) -> list[Abandoned]:
    """Return the running jobs of one child whose death was seen; ``on_purpose``: its worker had ended it."""
    jobs = Job.objects.using(using).filter(state="running", lease_owner=worker_id, lease_child=child)
    return _with_attempts(jobs, LossCause.ENDED if on_purpose else LossCause.EXIT, using)


def abandoned(*, using: str, limit: int = 500, after: Page | None = None) -> list[Abandoned]:
    """Return running jobs whose worker is silent or stopped, then those whose lease has been over for the patience.

    At most ``limit`` of each kind, by job id; ``after`` asks for what comes behind the jobs that were seen already.
    """
    rules = get_settings()
    after = after or Page()
    now = read_now(using)
    running = Job.objects.using(using).filter(state="running")
    alive = Worker.objects.using(using).filter(
        pk=OuterRef("lease_owner"), stopped_at__isnull=True, heartbeat_at__gt=now - rules.silent_after
    )
    silent = running.filter(~Exists(alive))
    expired = running.filter(Exists(alive), lease_expires_at__lt=now - rules.expired_patience)
    if after.silent:
        silent = silent.filter(pk__gt=after.silent)
    if after.expired:
        expired = expired.filter(pk__gt=after.expired)
    return [
        *_with_attempts(silent.order_by("id")[:limit], LossCause.SILENT, using, now=now),
        *_with_attempts(expired.order_by("id")[:limit], LossCause.EXPIRED, using, now=now),
    ]


def count_held(items: Sequence[Abandoned], *, using: str) -> int:
    """Return how many of these attempts still hold their job: rows that were skipped because somebody locks them."""
    held = 0
    for start in range(0, len(items), 500):
        ids = [item.attempt_id for item in items[start : start + 500]]
        pairs = Job.objects.using(using).filter(state="running", pk__in=[i.job_id for i in items[start : start + 500]])
        held += pairs.filter(attempt_id__in=ids).count()
    return held


def _with_attempts(
    jobs: Iterable[Job], cause: LossCause, using: str, *, now: datetime | None = None
) -> list[Abandoned]:
    found = list(jobs)
    if not found:
        return []
    now = now or read_now(using)
    attempts = Attempt.objects.using(using).in_bulk([job.attempt_id for job in found])
    stopping = asked_to_stop((job.lease_owner for job in found), using=using)
    return [
        _abandoned(
            job, held, attempts.get(held), cause=cause, using=using, now=now, stopping=job.lease_owner in stopping
        )
        for job in found
        if (held := job.attempt_id) is not None
    ]


def asked_to_stop(owners: Iterable[uuid.UUID | None], *, using: str) -> set[uuid.UUID]:
    """Return which of these workers had been asked to stop: their silence says nothing against what they held."""
    known = {owner for owner in owners if owner is not None}
    rows = Worker.objects.using(using).filter(pk__in=known, stopping_at__isnull=False)
    return set(rows.values_list("pk", flat=True))


def _abandoned(
    job: Job,
    attempt_id: uuid.UUID,
    attempt: Attempt | None,
    *,
    cause: LossCause,
    using: str,
    now: datetime,
    stopping: bool,
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
        extra_attempts=job.extra_attempts,
        age=now - job.generation_started_at,
        useful_left=None if job.useful_until is None else job.useful_until - now,
        cause=cause,
        error_fingerprint=job.error_fingerprint,
        lease_left=(job.lease_expires_at or now) - now,
        stopping=stopping,
        queue_name=job.queue_name,
        priority=job.priority,
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
    telemetry.emit("job.rescue", cause=loss.cause.value, **told_of(held))
    if loss.dead_reason:
        telemetry.emit("job.dead", reason=loss.dead_reason.value, **told_of(held))
    else:
        heed_request(held.job_id, using=held.using)
    return True
