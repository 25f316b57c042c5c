"""Telling the owner of a job: once, and only of what is committed."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, transaction

from django_jobs import telemetry
from django_jobs.domain.compensation import COMPENSATION_TYPE
from django_jobs.domain.states import AttemptOutcome, DeadReason, JobState
from django_jobs.models import Attempt, Job
from django_jobs.store import Held

CRITICAL, WARNING = "critical", "warning"  # critical: money or goods that somebody promised to give back
FIRST_UNKNOWN = "first unknown failure of its kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What is told about one job."""

    job_id: uuid.UUID
    job_type: str
    owner: str
    reason: str
    message: str = ""


def tell(alert: Alert, *, using: str) -> None:
    """Tell the owner once the transaction that is open has committed, at once without one."""
    transaction.on_commit(lambda: _emit(alert), using=using, robust=True)


def tell_of_dead_letter(
    alert: Alert, reason: DeadReason, *, using: str, once: Callable[[], bool] = lambda: True
) -> None:
    """Tell the owner of a dead letter, with its first error and how many attempts there were; see :func:`tell`.

    ``once`` says whether nobody has told of it yet, where several threads of one process may.
    """

    def emit() -> None:
        if once():
            _emit(alert, dead_reason=reason.value, **_story(alert.job_id, using))

    transaction.on_commit(emit, using=using, robust=True)


def tell_of_expired(rows: Iterable[Mapping[str, Any]], *, using: str) -> None:
    """Tell the owners of jobs that could not start in time; ``rows`` are what the store returned."""
    for row in rows:
        reason = DeadReason(row["dead_reason"])
        alert = Alert(
            job_id=row["id"],
            job_type=row["job_type"],
            owner=row["owner"],
            reason=dead_letter(reason, job_type=row["job_type"]),
        )
        tell_of_dead_letter(alert, reason, using=using)


def tell_if_dead(held: Held, *, owner: str, job_type: str, once: Callable[[], bool]) -> None:
    """Tell what could not be told because the reply to the COMMIT of this attempt's end was lost."""
    with contextlib.suppress(DatabaseError):
        job = (
            Job.objects.using(held.using)
            .filter(pk=held.job_id, state=JobState.DEAD_LETTERED, fence=held.number)
            .first()
        )
        failed = Attempt.objects.using(held.using).filter(pk=held.attempt_id, outcome=AttemptOutcome.FAILED)
        if job is None or not failed.exists():
            return  # somebody else judged it, and told
        reason = DeadReason(job.dead_reason)
        alert = Alert(job_id=job.pk, job_type=job_type, owner=owner, reason=dead_letter(reason, job_type=job_type))
        tell_of_dead_letter(alert, reason, using=held.using, once=once)


def dead_letter(reason: DeadReason, *, job_type: str = "") -> str:
    """Return the reason of an alert about a dead letter; one that takes something back is told as that."""
    of = " of a compensation" if job_type == COMPENSATION_TYPE else ""
    return f"dead letter{of}: {reason.value}"


def _story(job_id: uuid.UUID, using: str) -> dict[str, object]:
    """Return how it began: an alert goes out with less when the database does not answer now."""
    with contextlib.suppress(DatabaseError):
        attempts = Attempt.objects.using(using).filter(job_id=job_id)
        failed = attempts.filter(outcome=AttemptOutcome.FAILED).order_by("number")
        first = failed.values_list("error_type", "message").first() or ("", "")
        return {"attempts": attempts.count(), "first_error_type": first[0], "first_error": first[1]}
    return {}


def _emit(alert: Alert, **more: object) -> None:
    telemetry.emit(
        "owner.alert",
        reason=alert.reason,
        job_id=alert.job_id,
        job_type=alert.job_type,
        owner=alert.owner,
        message=alert.message,
        severity=CRITICAL if alert.job_type == COMPENSATION_TYPE else WARNING,
        **more,
    )
