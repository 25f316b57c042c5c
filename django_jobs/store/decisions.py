"""Moves of a job that a person decides, and the locks under which a decision is judged.

Each move proves the revision that was looked at, so that a decision about an older state changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.compensation import COMPENSATION_TYPE
from django_jobs.domain.states import CompensationOutcome, JobState
from django_jobs.models import Compensation, Job, SideEffect
from django_jobs.store.compensations import applied_anyway, hold_given_up, hold_taking_back
from django_jobs.store.statements import run
from django_jobs.store.times import database_now

STANDING = (CompensationOutcome.OPEN.value, CompensationOutcome.SUCCEEDED.value)


def lock_job(job_id: uuid.UUID, *, using: str) -> None:
    """Hold the row of a job, then those of its effects in the order of their ids, until the transaction ends.

    What a compensation's job is to do may be an effect of an earlier job: that one is held too, and so is what was to
    take back an effect of the job and was given up. Call it first in a transaction. SQLite has no row locks: its
    transactions write one at a time.
    """
    job = Job.objects.using(using).select_for_update(no_key=True).filter(pk=job_id)
    job_type = job.values_list("job_type", flat=True).first()
    effects = SideEffect.objects.using(using).select_for_update(no_key=True)
    list(effects.filter(job_id=job_id).order_by("id").values_list("pk"))
    if job_type == COMPENSATION_TYPE:
        hold_taking_back(job_id, using=using)
    else:
        hold_given_up(job_id, using=using)


def standing_compensations(job_ids: Collection[uuid.UUID], *, using: str) -> dict[uuid.UUID, list[Compensation]]:
    """Return, by original job, the compensations that stand against it, in the order of their making.

    They are open or succeeded; or they were given up, and what they were to do was applied all the same.
    """
    found: dict[uuid.UUID, list[Compensation]] = {}
    made = Compensation.objects.using(using).filter(original_job_id__in=list(job_ids)).select_related("effect")
    rows = list(made.order_by("created_at", "id"))
    anyway = applied_anyway((row for row in rows if row.outcome not in STANDING), using=using)
    for row in rows:
        if row.outcome in STANDING or row.effect_id in anyway:
            found.setdefault(row.original_job_id, []).append(row)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A job after its replay: the new generation, and when it is due."""

    generation: int
    state: JobState
    available_at: datetime


def replay(
    job_id: uuid.UUID,
    *,
    revision: int,
    using: str,
    extra_attempts: int = 0,
    run_after: datetime | None = None,
    delay: timedelta | None = None,
    useful_for: timedelta | None = None,
) -> Replayed | None:
    """Begin a new generation of a dead letter; its identity, key, attempt numbers, steps and effects stay.

    Args:
        job_id: The job.
        revision: The one that was looked at.
        using: The database alias.
        extra_attempts: What is added to the budget of unknown errors in this generation.
        run_after: When it is due at the earliest; the past means now.
        delay: Or: after how long it is due.
        useful_for: From when it is due, how long its result is worth something; None leaves what is stored.

    Returns:
        None when nothing changed: it is no unresolved dead letter of this revision, its content is gone, or an
        effect of it is being or has been taken back.
    """
    params = {
        "job_id": job_id,
        "revision": revision,
        "extra_attempts": extra_attempts,
        "run_after": run_after,
        "delay": delay,
        "useful_for": useful_for,
        "notify": get_settings().notify,
    }
    rows = run("replay", params, using=using)
    if not rows:
        return None
    row = rows[0]
    telemetry.emit("job.replay", job_id=job_id, generation=row["generation"])
    return Replayed(generation=row["generation"], state=JobState(row["state"]), available_at=row["available_at"])


def discard(job_id: uuid.UUID, *, revision: int, using: str) -> datetime | None:
    """Settle a dead letter as discarded; a compensation that it was to carry out is void.

    Returns:
        When it finished, or None when nothing changed: it is no unresolved dead letter of this revision, or an effect
        of it is being or has been taken back.
    """
    rows = run("discard", {"job_id": job_id, "revision": revision}, using=using)
    if not rows:
        return None
    telemetry.emit("job.discard", job_id=job_id)
    finished: datetime = rows[0]["finished_at"]
    return finished


def run_now(job_id: uuid.UUID, *, revision: int, using: str) -> bool:
    """Queue a job that waits for its time.

    Returns:
        False when nothing changed: it does not wait at this revision, is set aside, or is not useful any more.
    """
    params = {"job_id": job_id, "revision": revision, "notify": get_settings().notify}
    rows = run("run_now", params, using=using)
    if rows:
        telemetry.emit("job.run_now", job_id=job_id)
    return bool(rows)


def expire_lease(job_id: uuid.UUID, *, attempt_id: uuid.UUID, revision: int, using: str) -> bool:
    """End the lease of a running attempt now, so that a reaper takes the job back after the patience of the settings.

    Until then its holder may still renew or finish it.

    Returns:
        False when nothing changed: another attempt runs it, or the lease is over already.
    """
    now = database_now(using)
    held = Job.objects.using(using).filter(
        pk=job_id, state="running", attempt_id=attempt_id, revision=revision, lease_expires_at__gt=now
    )
    changed = held.update(lease_expires_at=now, revision=F("revision") + 1)
    if changed:
        telemetry.emit("lease.expired", job_id=job_id, attempt_id=attempt_id)
    return bool(changed)
