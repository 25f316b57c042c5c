"""Cancelling: of waiting jobs at once, of running ones by a request that their holder hears.

A request holds for one generation of its job. Whoever commits first wins: an attempt that succeeds, or leaves a dead
letter, makes it too late; after every other end the job is cancelled before it can start again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.models import Exists, F, OuterRef

from django_jobs import faults, telemetry
from django_jobs.domain.compensation import COMPENSATION_TYPE
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import DeadReason, EffectState, JobState
from django_jobs.models import CancelRequest, Job
from django_jobs.models.job import WAITING
from django_jobs.store.brief import briefly
from django_jobs.store.compensations import hold_taking_back
from django_jobs.store.contention import run_again
from django_jobs.store.leases import Held, groups_of, refused, told_of
from django_jobs.store.statements import Row, run
from django_jobs.store.times import read_now

_APPLIED = (EffectState.IN_FLIGHT, EffectState.AMBIGUOUS, EffectState.SUCCEEDED)


def cancel(job_id: uuid.UUID, *, using: str) -> JobState | None:
    """End a waiting job as cancelled, or as a dead letter when an effect of it may have been applied.

    The row is locked by a statement of its own: what an attempt recorded until then is seen by the one that decides.

    Returns:
        Where the job stands now; None when nothing changed, because it was not waiting.
    """
    rows = _under_lock("cancel", {"job_id": job_id}, using)
    if not rows:
        return None
    telemetry.emit("job.cancel", job_id=job_id)
    return _told(job_id, rows[0]["state"])


def cancel_running(held: Held, *, message: str, budget: timedelta) -> JobState:
    """End an attempt and its job as cancelled, or the job as a dead letter when an effect of it may have been applied.

    Returns:
        Where the job stands now.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
    """
    params = {"job_id": held.job_id, "attempt_id": held.attempt_id, "message": message, "budget": budget}
    rows = _under_lock("cancel_running", params, held.using)
    if not rows:
        refused(held, "cancel_running")
    telemetry.emit("job.cancel_running", **told_of(held))
    return _told(held.job_id, rows[0]["state"], groups_of(held))


def _under_lock(name: str, params: dict[str, Any], using: str) -> list[Row]:
    def both() -> list[Row]:
        with briefly(using):
            compensates = _hold(params["job_id"], using) == COMPENSATION_TYPE
            applied = compensates and _may_be_taken_back(params["job_id"], using)
            return run(name, {**params, "applied": applied}, using=using)

    if connections[using].in_atomic_block:
        return both()
    rows = run_again(both)
    if rows:
        faults.reached("cancel.after_commit", using=using)
    return rows


def _hold(job_id: uuid.UUID, using: str) -> str | None:
    """Lock the job and return its type."""
    rows = Job.objects.using(using).select_for_update(no_key=True).filter(pk=job_id)
    return rows.values_list("job_type", flat=True).first()


def _may_be_taken_back(job_id: uuid.UUID, using: str) -> bool:
    """Say whether a compensation may have been applied, by this job or by one that was given up before."""
    return hold_taking_back(job_id, using=using) in _APPLIED


def _told(job_id: uuid.UUID, state: str, groups: Mapping[str, object] | None = None) -> JobState:
    if state == JobState.DEAD_LETTERED:
        telemetry.emit("job.dead", job_id=job_id, reason=DeadReason.CANCELLED.value, **(groups or {}))
    return JobState(state)


def request_cancel(job_id: uuid.UUID, *, generation: int, action_id: uuid.UUID, using: str) -> None:
    """Ask that a running job end as cancelled; the caller holds the row of the job, so that no end slips past it.

    The job's revision rises, so that whoever locks the row with an older snapshot is refused by it.
    """
    Job.objects.using(using).filter(pk=job_id).update(revision=F("revision") + 1)
    row = CancelRequest(
        id=uuid7(), job_id=job_id, generation=generation, action_id=action_id, created_at=read_now(using)
    )
    row.save(using=using, force_insert=True)
    telemetry.emit("job.cancel_requested", job_id=job_id, generation=generation)


def cancels_asked(jobs: Iterable[tuple[uuid.UUID, int]], *, using: str) -> set[uuid.UUID]:
    """Return which of these jobs (id and generation) somebody wants cancelled; one cheap read."""
    wanted = dict(jobs)
    rows = CancelRequest.objects.using(using).filter(job_id__in=list(wanted))
    return {job_id for job_id, generation in rows.values_list("job_id", "generation") if wanted[job_id] == generation}


def heed_request(job_id: uuid.UUID, *, using: str) -> JobState | None:
    """Cancel a job that an attempt has just left waiting, if that was asked for in its present generation.

    A statement after the one that ended the attempt: a request that was committed while that one waited for the row is
    seen by this one.

    Returns:
        Where the job stands now; None when there is no request, or somebody else has moved the job on.
    """
    if not CancelRequest.objects.using(using).filter(job_id=job_id).exists():
        return None

    def both() -> JobState | None:
        with briefly(using):
            _hold(job_id, using)
            mine = CancelRequest.objects.filter(job_id=OuterRef("pk"), generation=OuterRef("generation"))
            asked = Job.objects.using(using).filter(Exists(mine), pk=job_id, state__in=WAITING)
            return cancel(job_id, using=using) if asked.exists() else None

    return both() if connections[using].in_atomic_block else run_again(both)
