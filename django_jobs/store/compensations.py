"""The rows that say which effects are being, or have been, taken back, by which job and by whose decision.

Locks are taken in one order. Whoever decides about a job locks it before anything else: the original for a new
compensation or a replay, the compensation's own job for its end. Only the end of a compensation locks a second job, the
original; nobody who holds an original waits for a job that takes something of it back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db.models import F

from django_jobs import telemetry
from django_jobs.domain.compensation import COMPENSATION_EFFECT, taken_back_key
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import CompensationOutcome, EffectState
from django_jobs.exceptions import JobsError
from django_jobs.models import Compensation, Job, SideEffect
from django_jobs.store.statements import run
from django_jobs.store.times import read_now

_VOID = CompensationOutcome.VOID.value
_OPEN = CompensationOutcome.OPEN.value


def compensations_of(job_id: uuid.UUID, *, using: str) -> list[Compensation]:
    """Return all that was decided about taking back effects of a job, oldest first, void ones included."""
    return list(Compensation.objects.using(using).filter(original_job_id=job_id).order_by("created_at", "id"))


def compensation_by(job_id: uuid.UUID, *, using: str) -> Compensation | None:
    """Return what this job is to take back; None when it is no compensation."""
    return Compensation.objects.using(using).filter(job_id=job_id).first()


def open_compensation(
    effect: SideEffect, *, job_id: uuid.UUID, action_id: uuid.UUID, now: datetime, using: str
) -> Compensation:
    """Record that a job takes an effect back; the caller holds the locks of the original job and of the effect.

    The revisions of both rise: a decision about the job, or a completion on the effect's receipt, whose transaction
    began before this one ended does not see the new row, and is refused by the rows that it locks.
    """
    Job.objects.using(using).filter(pk=effect.job_id).update(revision=F("revision") + 1)
    SideEffect.objects.using(using).filter(pk=effect.pk).update(revision=F("revision") + 1)
    row = Compensation(
        id=uuid7(),
        effect_id=effect.pk,
        original_job_id=effect.job_id,
        job_id=job_id,
        action_id=action_id,
        outcome=_OPEN,
        created_at=now,
    )
    row.save(using=using, force_insert=True)
    return row


def why_not_void(job_id: uuid.UUID, *, way: str, using: str) -> str:
    """Say why a compensation's job may not be discarded or cancelled, in plain English; empty if it may, or is none.

    ``way`` says what to do instead once the effect is taken back: a dead letter is replayed, another job is let run.
    When what takes the effect back was applied, or may have been, giving the job up would let the original be replayed
    as if nothing had been taken back.
    """
    row = compensation_by(job_id, using=using)
    if row is None or row.outcome != _OPEN:
        return ""
    found = taking_back_row(row.effect, using=using)
    state = found.state if found else None
    if state == EffectState.SUCCEEDED:
        return f"What it was to take back has been taken back already. {way}: it sends nothing and only records that."
    if state in (EffectState.IN_FLIGHT, EffectState.AMBIGUOUS):
        return "Whether the effect was taken back is not known. Resolve that first."
    return ""


def taking_back_row(effect: SideEffect, *, using: str, hold: bool = False) -> SideEffect | None:
    """Return what takes an effect back, whichever job sent it; None while nothing was intended.

    With ``hold`` it is locked until the transaction ends, so that an older snapshot is refused by it.
    """
    rows = SideEffect.objects.using(using)
    found = (rows.select_for_update(no_key=True) if hold else rows).filter(
        tenant=effect.tenant,
        provider=effect.provider,
        business_key=taken_back_key(effect.pk),
        name=COMPENSATION_EFFECT,
    )
    return found.first()


def hold_taking_back(job_id: uuid.UUID, *, using: str) -> EffectState | None:
    """Lock what a compensation's job is to do, whichever job sent it, and return its state; None: nothing was intended.

    The caller holds the job. Evidence about an earlier job's request needs no job, and waits until the transaction
    ends: nobody gives up what turns out to be applied at that moment.
    """
    row = compensation_by(job_id, using=using)
    found = taking_back_row(row.effect, using=using) if row is not None else None
    if found is None:
        return None
    locked = SideEffect.objects.using(using).select_for_update(no_key=True).filter(pk=found.pk)
    return EffectState(locked.values_list("state", flat=True).get())


def hold_given_up(original_job_id: uuid.UUID, *, using: str) -> None:
    """Lock what was to take effects of a job back and was given up: that it was applied may be learned late.

    The caller holds the original. What a standing compensation does is left alone: its end waits for the original.
    """
    made = Compensation.objects.using(using).filter(original_job_id=original_job_id)
    given_up = {row.effect_id: row.effect for row in made.filter(outcome=_VOID).select_related("effect")}
    if not given_up:
        return
    standing = set(made.exclude(outcome=_VOID).values_list("effect_id", flat=True))
    for effect_id in sorted(given_up.keys() - standing):
        taking_back_row(given_up[effect_id], using=using, hold=True)


def applied_anyway(given_up: Iterable[Compensation], *, using: str) -> set[uuid.UUID]:
    """Return the effects that were taken back although the compensations that were to do it had been given up.

    A provider's late confirmation is taken whatever was concluded before.
    """
    wanted: dict[tuple[str, str], set[uuid.UUID]] = {}
    for row in given_up:
        wanted.setdefault((row.effect.tenant, row.effect.provider), set()).add(row.effect_id)
    found: set[uuid.UUID] = set()
    for (tenant, provider), effects in wanted.items():
        by_key = {taken_back_key(pk): pk for pk in effects}
        applied = SideEffect.objects.using(using).filter(
            tenant=tenant,
            provider=provider,
            business_key__in=by_key,
            name=COMPENSATION_EFFECT,
            state=EffectState.SUCCEEDED.value,
        )
        found |= {by_key[key] for key in applied.values_list("business_key", flat=True)}
    return found


def succeed_for(job_id: uuid.UUID, *, using: str) -> bool:
    """Close the compensation of a job in its completion; settle the original if this was the last one it needed.

    The caller holds the job. The original is locked before anything is written: the last of several compensations that
    end at the same time sees the others.

    Returns:
        Whether the original's dead letter is resolved by it.

    Raises:
        JobsError: Nobody decided about such a compensation, or it is closed.
    """
    row = compensation_by(job_id, using=using)
    if row is None:
        msg = f"Job {job_id} takes nothing back: no decision about it is recorded."
        raise JobsError(msg)
    hold_job(row.original_job_id, using=using)
    closed = Compensation.objects.using(using).filter(pk=row.pk, outcome=_OPEN)
    if not closed.update(outcome=CompensationOutcome.SUCCEEDED.value, closed_at=read_now(using)):
        msg = f"The compensation of effect {row.effect_id} by job {job_id} is closed already."
        raise JobsError(msg)
    telemetry.emit("compensation.succeeded", job_id=job_id, effect_id=row.effect_id)
    return compensated(row.original_job_id, using=using)


def compensated(job_id: uuid.UUID, *, using: str) -> bool:
    """Resolve a dead letter of which everything that was applied has been taken back; returns whether that is so.

    Run it while the job is locked, in a statement after the lock, so that it sees what others have just committed.
    """
    if not run("compensated", {"job_id": job_id}, using=using):
        return False
    telemetry.emit("job.compensated", job_id=job_id)
    return True


def hold_job(job_id: uuid.UUID, *, using: str) -> None:
    """Lock one job until the transaction ends."""
    list(Job.objects.using(using).select_for_update(no_key=True).filter(pk=job_id).values_list("pk"))
