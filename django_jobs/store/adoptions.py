"""Jobs that stand on the receipt of another job's effect: that they took it, and that it still holds at their end.

Both raise the effect's revision. Whoever decides about the effect with an older snapshot than that is refused by the
row instead of missing a job that relies on it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime

from django.db.models import F

from django_jobs.domain.effects import may_adopt
from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import EffectState
from django_jobs.exceptions import EffectKeyReusedError
from django_jobs.models import EffectAdoption, SideEffect
from django_jobs.store.effect_rows import compensation_of
from django_jobs.store.leases import Held


def keep_adoption(effect: SideEffect, held: Held, now: datetime) -> None:
    """Remember that a job took the receipt of another one's effect; the caller holds the effect."""
    adoptions = EffectAdoption.objects.using(held.using)
    if adoptions.filter(effect_id=effect.pk, job_id=held.job_id).exists():
        return
    row = EffectAdoption(
        id=uuid7(), effect_id=effect.pk, job_id=held.job_id, attempt_id=held.attempt_id, created_at=now
    )
    adoptions.bulk_create([row], ignore_conflicts=True)
    _raise_revision([effect.pk], held.using)


def recheck_adopted(held: Held) -> None:
    """Lock what a completion stands on, and refuse it if a receipt of another job does not hold any more.

    Locked are the adopted effects, and the own ones that were rejected: while the job completes on a refusal, no other
    job may take the effect over and send it.

    Raises:
        EffectKeyReusedError: An adopted effect is being, or has been, taken back.
    """
    adopted = EffectAdoption.objects.using(held.using).filter(job_id=held.job_id).values_list("effect_id", flat=True)
    rows = SideEffect.objects.using(held.using)
    refused = rows.filter(job_id=held.job_id, state=EffectState.REJECTED.value).values_list("pk", flat=True)
    ids = sorted(adopted.union(refused, all=True))
    if not ids:
        return
    locked = rows.filter(pk__in=ids).order_by("id").select_for_update(no_key=True)
    theirs = [effect for effect in locked if effect.job_id != held.job_id]
    for effect in theirs:
        if not may_adopt(state=EffectState(effect.state), compensation=compensation_of(effect)):
            msg = (
                f"Job {held.job_id} took the receipt of the effect {effect.name!r} ({effect.business_key}) from job "
                f"{effect.job_id}, and it does not hold any more (state {effect.state}, compensation "
                f"{compensation_of(effect)}). A human decides what the two jobs mean."
            )
            raise EffectKeyReusedError(msg)
    if theirs:
        _raise_revision([effect.pk for effect in theirs], held.using)


def _raise_revision(effects: Collection[uuid.UUID], using: str) -> None:
    SideEffect.objects.using(using).filter(pk__in=effects).update(revision=F("revision") + 1)
