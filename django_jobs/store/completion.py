"""What a completing handler needs: the lock on its job, the truth after a lost reply, and finished steps."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import connections

from django_jobs.domain.ids import uuid7
from django_jobs.models import Attempt, Job, JobStep
from django_jobs.store.brief import briefly
from django_jobs.store.leases import Held, refused
from django_jobs.store.statements import run
from django_jobs.store.times import database_now

IDLE_LIMIT = timedelta(seconds=15)


def lock_for_completion(held: Held, *, idle: timedelta, operation: str = "complete") -> None:
    """Lock the job row under this attempt, as the first statement of the transaction that is open.

    On PostgreSQL the same statement limits how long the session may idle in this transaction, so that a host which
    vanishes inside it does not hold the row longer than ``idle``, at most 15 seconds.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
    """
    rows = run(
        "queries/lock_job",
        {
            "job_id": held.job_id,
            "attempt_id": held.attempt_id,
            "idle": str(max(1000, int(min(idle, IDLE_LIMIT).total_seconds() * 1000))),
        },
        using=held.using,
    )
    if not rows:
        refused(held, operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What the database says about an attempt: its outcome if it is closed, and whether it still owns the job."""

    outcome: str | None
    owns: bool


def read_back(held: Held) -> ReadBack:
    """Find out what became of an attempt after the reply to a COMMIT was lost.

    Locks the job row, so that a transaction which is still committing is waited for.
    """
    with briefly(held.using):
        jobs = Job.objects.using(held.using).filter(pk=held.job_id)
        if connections[held.using].features.has_select_for_no_key_update:
            jobs = jobs.select_for_update(no_key=True)
        job = jobs.only("state", "attempt_id").first()
        outcome = Attempt.objects.using(held.using).filter(pk=held.attempt_id).values_list("outcome", flat=True).first()
    owns = job is not None and job.state == "running" and job.attempt_id == held.attempt_id
    return ReadBack(outcome=outcome, owns=owns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A job that a claim gave away although its reply was lost."""

    job_id: uuid.UUID
    attempt_id: uuid.UUID
    number: int
    using: str


def given(attempt_ids: Sequence[uuid.UUID], *, using: str) -> list[Given]:
    """Return which of these attempt ids really hold a job."""
    attempts = Attempt.objects.using(using).filter(pk__in=list(attempt_ids), outcome__isnull=True)
    return [
        Given(job_id=attempt.job_id, attempt_id=attempt.pk, number=attempt.number, using=using) for attempt in attempts
    ]


def finished_step(held: Held, name: str) -> str | None:
    """Return the stored result of a step of this job, or None when it has not finished."""
    step = JobStep.objects.using(held.using).filter(job_id=held.job_id, name=name).first()
    return step.result if step else None


def remember_step(held: Held, name: str, result: str) -> None:
    """Store that a step has finished, in the transaction of the step itself."""
    JobStep.objects.using(held.using).create(
        id=uuid7(),
        job_id=held.job_id,
        name=name,
        result=result,
        attempt_id=held.attempt_id,
        fence=held.number,
        created_at=database_now(held.using),
    )
