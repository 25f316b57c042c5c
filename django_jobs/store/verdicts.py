"""What a human says about an effect, written down as the answer to a question is: evidence with a name under it."""

from __future__ import annotations

import uuid

from django_jobs import telemetry
from django_jobs.domain.effects import AfterReconcile, Meaning
from django_jobs.domain.ids import uuid7
from django_jobs.domain.judgement import Judgement
from django_jobs.domain.providers import Verdict
from django_jobs.domain.states import EffectState
from django_jobs.models import Reconciliation, SideEffect
from django_jobs.store.brief import briefly
from django_jobs.store.effect_rows import BY_OPERATOR, json_text, storable
from django_jobs.store.effects import close_open, conclude, rejoin, sends_of
from django_jobs.store.times import read_now

_VERDICTS = {
    Judgement.APPLIED: (Verdict.SUCCEEDED, Meaning.APPLIED, "found that it was applied"),
    Judgement.NOT_APPLIED: (Verdict.NOT_FOUND, Meaning.NOT_APPLIED, "found that it was not applied"),
    Judgement.ABANDON: (Verdict.UNAVAILABLE, Meaning.DECIDE, "gave it up: nobody can find out"),
}


def resolve_effect(
    effect_id: uuid.UUID, judgement: Judgement, *, provider_ref: str, evidence: str, actor: str, using: str
) -> EffectState:
    """Record a human's judgement; whether it may be made is for the caller to ask, under the rows' locks.

    Requests that were confirmed or rejected by the provider stay as they are, and a confirmation that arrives later
    still wins.

    Returns:
        The effect's state after it.
    """
    verdict, meaning, what = _VERDICTS[judgement]
    with briefly(using):
        effect = SideEffect.objects.using(using).select_for_update(no_key=True).get(pk=effect_id)
        sends, now = sends_of(effect), read_now(using)
        why = storable(f"{actor} {what}. {evidence}".strip())
        after = AfterReconcile(meaning=meaning, why=why)
        row = Reconciliation(
            id=uuid7(),
            effect_id=effect.pk,
            actor=actor,
            created_at=now,
            verdict=verdict.value,
            is_final=after.final,
            provider_ref=provider_ref,
            evidence=json_text({"text": evidence}),
        )
        row.save(using=using, force_insert=True)
        if judgement is Judgement.ABANDON:
            close_open(sends, now, over=True)
            effect.state, effect.review_reason, effect.needs_review = EffectState.ABANDONED.value, why, False
            effect.resolved_by, effect.resolved_at = BY_OPERATOR, now
            rejoin(effect, sends, now)
        else:
            conclude(effect, sends, row, after, burnt=False, now=now, by=BY_OPERATOR)
        effect.save()
    telemetry.emit("effect.resolved", job_id=effect.job_id, effect_id=effect.pk, judgement=judgement.value)
    return EffectState(effect.state)
