"""Deciding by hand whether an effect was applied, with the evidence; one effect at a time, never many at once."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django_jobs.domain.judgement import Judgement, refuse_judgement
from django_jobs.domain.states import JobState, is_unfinished
from django_jobs.exceptions import OperatorError, RowBusyError
from django_jobs.models import Job, Send, SideEffect
from django_jobs.operate.action import REASON_LIMIT, REASON_MIN, Decision, Operator, Plan, Target, check_text
from django_jobs.operate.history import EffectHistory, effect_history
from django_jobs.operate.lookup import EffectNotFoundError
from django_jobs.operate.replay_plan import facts_of
from django_jobs.store.times import read_now
from django_jobs.store.verdicts import resolve_effect

REFERENCE_LIMIT = 255

_MEANS: dict[Judgement, str] = {
    Judgement.APPLIED: "It counts as applied: it is never sent again, and the job's next attempt takes its receipt.",
    Judgement.NOT_APPLIED: "It counts as not applied: the job's next attempt sends it. Be sure: this can double it.",
    Judgement.ABANDON: "It is given up: it is not sent again, and the job may succeed without knowing.",
}


class Resolve(Decision):
    """Say whether one effect was applied.

    Args:
        effect_id: The effect.
        verdict: "applied", "not_applied" or "abandon".
        provider_ref: What the provider calls it; needed for "applied", and for nothing else.
        evidence: Where that was seen; needed unless it was applied, where the reference may be evidence enough.
        using: The database.

    Raises:
        OperatorError: The verdict is none of the three, or what it needs is missing or cannot be stored.
    """

    name = "resolve"
    permission = "resolve_sideeffect"

    def __init__(
        self, effect_id: uuid.UUID, verdict: str, *, provider_ref: str = "", evidence: str = "", using: str
    ) -> None:
        super().__init__(using=using)
        if verdict not in list(Judgement):
            msg = f"The verdict must be one of {', '.join(Judgement)}, not {verdict!r}."
            raise OperatorError(msg)
        self.effect_id, self.verdict = effect_id, Judgement(verdict)
        self.provider_ref, self.evidence = provider_ref, evidence
        applied = self.verdict is Judgement.APPLIED
        check_text("provider reference", provider_ref, least=int(applied), most=REFERENCE_LIMIT)
        check_text("evidence", evidence, least=0 if applied else REASON_MIN, most=REASON_LIMIT)
        if provider_ref and not applied:
            msg = "A provider reference names what was applied; say so, or leave it out."
            raise OperatorError(msg)

    def lock(self) -> None:
        """Lock the owning job, then the effect.

        Raises:
            RowBusyError: Another job took the effect over at this moment.
        """
        rows = SideEffect.objects.using(self.using).filter(pk=self.effect_id)
        owner = rows.values_list("job_id", flat=True).first()
        if owner is None:
            return
        Job.objects.using(self.using).select_for_update(no_key=True).filter(pk=owner).first()
        locked = rows.select_for_update(no_key=True).first()
        if locked is not None and locked.job_id != owner:
            msg = "Another job took this effect over just now; nothing was done. Look again."
            raise RowBusyError(msg)

    def _effect(self) -> SideEffect:
        effect = SideEffect.objects.using(self.using).filter(pk=self.effect_id).first()
        if effect is None:
            msg = f"There is no side effect {self.effect_id} in database {self.using!r}."
            raise EffectNotFoundError(msg)
        return effect

    def plan(self) -> Plan:
        """Say what the verdict would mean now; reads only.

        Raises:
            EffectNotFoundError: There is no such effect.
        """
        effect = self._effect()
        owner = Job.objects.using(self.using).filter(pk=effect.job_id).first()
        item = effect_history(effect, using=self.using)
        where = f"{effect.name} ({effect.business_key}) at {effect.provider}"
        refused = self._refused(item, owner)
        return Plan(
            action=self.name,
            title=f"Resolve the side effect {where} as {self.verdict.replace('_', ' ')}",
            refused=refused,
            facts={
                "effect": str(effect.pk),
                "state": effect.state,
                "revision": effect.revision,
                "job": str(effect.job_id),
                "job_state": owner.state if owner else "",
                "sends": [[send.number, send.outcome or "open"] for send in item.sends],
                "verdict": self.verdict.value,
                "provider_ref": self.provider_ref,
                "evidence": self.evidence,
            },
            lines=() if refused else self._lines(item, owner),
        )

    def _refused(self, item: EffectHistory, owner: Job | None) -> str:
        now = read_now(self.using)
        facts = facts_of(item, job_id=item.effect.job_id, now=now)
        works = owner is not None and owner.state != JobState.DEAD_LETTERED
        works = works and owner is not None and is_unfinished(owner.state, owner.resolution)
        until = max((send.deadline_at for send in item.sends if send.outcome is None), default=None)
        return refuse_judgement(self.verdict, replace(facts, owner_unfinished=works), call_until=until)

    def _lines(self, item: EffectHistory, owner: Job | None) -> tuple[str, ...]:
        def told(send: Send) -> str:
            request_id = f", provider request id {send.provider_request_id}" if send.provider_request_id else ""
            return f"  Send {send.number}: key {send.provider_key}, {send.outcome or 'no answer recorded'}{request_id}"

        job = f"job {item.effect.job_id} ({owner.state.replace('_', ' ')})" if owner else "a job that is gone"
        return (
            f"It belongs to {job} and is {item.effect.state.replace('_', ' ')} now.",
            *map(told, item.sends),
            _MEANS[self.verdict],
        )

    def target(self) -> Target:
        """Return effect and job as they are before the decision."""
        effect = self._effect()
        owner = Job.objects.using(self.using).filter(pk=effect.job_id).first()
        return Target(
            job_id=effect.job_id,
            effect_id=effect.pk,
            from_state=effect.state,
            from_revision=effect.revision,
            from_generation=owner.generation if owner else None,
        )

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Record the verdict."""
        state = resolve_effect(
            self.effect_id,
            self.verdict,
            provider_ref=self.provider_ref,
            evidence=self.evidence,
            actor=operator.actor,
            using=self.using,
        )
        said = f"Recorded. The effect is {state.replace('_', ' ')} now. {_MEANS[self.verdict]}"
        return said, {"state": state.value}
