"""Jobs that asked for an effect which another job owns: what keeps them from succeeding as if they had not asked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import EffectState, is_unfinished
from django_jobs.models import EffectAdoption, EffectStake, Job, Send, SideEffect
from django_jobs.store.leases import Held


def keep_asker(effect: SideEffect, held: Held, *, required: bool, now: datetime) -> None:
    """Remember that this attempt asked for another job's effect and got no receipt."""
    _write(effect, held.job_id, {"attempt_id": held.attempt_id, "required": required}, now)


def keep_former_owner(effect: SideEffect, sends: Sequence[Send], now: datetime) -> None:
    """Remember the job from which another one takes the effect over, unless that has finished."""
    owner = Job.objects.using(effect._state.db).filter(pk=effect.job_id).only("state", "resolution").first()  # noqa: SLF001
    if owner is None or not is_unfinished(owner.state, owner.resolution):
        return
    last = next((send.attempt_id for send in reversed(sends) if send.job_id == effect.job_id), None)
    _write(effect, effect.job_id, {"attempt_id": last, "required": effect.required, "owned": True}, now)


def _write(effect: SideEffect, job_id: uuid.UUID, columns: dict[str, object], now: datetime) -> None:
    row = EffectStake(id=uuid7(), effect_id=effect.pk, job_id=job_id, created_at=now, **columns)
    EffectStake.objects.using(effect._state.db).bulk_create(  # noqa: SLF001
        [row], update_conflicts=True, unique_fields=["effect", "job"], update_fields=list(columns)
    )


def standing_against(held: Held) -> QuerySet[SideEffect]:
    """Return the effects of other jobs that keep this attempt from succeeding: what the statement ``succeed`` says."""
    effects = SideEffect.objects.using(held.using)
    taken = EffectAdoption.objects.filter(effect_id=OuterRef("effect_id"), job_id=held.job_id)
    stakes = (
        EffectStake.objects.using(held.using)
        .filter(job_id=held.job_id)
        .exclude(effect__job_id=held.job_id)
        .filter(Q(attempt_id=held.attempt_id) | (Q(owned=True) & ~Q(effect__state=EffectState.SUCCEEDED.value)))
        .exclude(effect__state=EffectState.REJECTED.value, required=False)
        .exclude(Exists(taken), effect__state=EffectState.SUCCEEDED.value)
    )
    return effects.filter(pk__in=stakes.values("effect_id"))
