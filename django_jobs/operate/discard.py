"""The discard of one dead letter: it is settled, nothing of it runs again, and its effects stay as they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.domain.states import CompensationOutcome, EffectState, JobState
from django_jobs.enqueue.closing import close_after_commit
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Compensation
from django_jobs.operate.action import Acknowledgement, Operator, Plan
from django_jobs.operate.composition import settling_lines
from django_jobs.operate.history import EffectHistory, JobHistory, history_of, plain
from django_jobs.operate.job_decision import JobDecision, basic_facts, state_in_words
from django_jobs.operate.wording import instant
from django_jobs.store.compensations import why_not_void
from django_jobs.store.decisions import discard

_SETTLED = (EffectState.SUCCEEDED, EffectState.REJECTED, EffectState.ABANDONED)


class Discard(JobDecision):
    """Settle a dead letter as discarded. Its key answers until its time to live is over, then it is free."""

    name = "discard"
    permission = "discard_job"

    def plan(self) -> Plan:
        """Say what a discard would leave.

        Raises:
            JobNotFoundError: There is no such job.
        """
        history = history_of(self.job(), using=self.using)
        job = history.job
        return Plan(
            action=self.name,
            title=f"Discard job {job.pk} ({job.job_type})",
            refused=_refused(history) or self.taken_back() or why_not_void(job.pk, way="Replay it", using=self.using),
            facts={
                **basic_facts(job),
                "dead_reason": job.dead_reason,
                "dead_at": plain(job.dead_at),
                "effects": [_effect_facts(item) for item in history.effects],
                "compensates": self._compensates(),
            },
            lines=tuple(self._lines(history)),
            acknowledge=tuple(_acknowledge(history)),
        )

    def _compensates(self) -> str | None:
        row = (
            Compensation.objects.using(self.using)
            .filter(job_id=self.job_id, outcome=CompensationOutcome.OPEN.value)
            .first()
        )
        return None if row is None else str(row.original_job_id)

    def _lines(self, history: JobHistory) -> Iterator[str]:
        if history.job.state == JobState.DEAD_LETTERED:
            yield f"It is {state_in_words(history.job)}."
        for item in history.effects:
            yield f"{_named(item)} stays as it is: {item.effect.state}."
        if not history.effects:
            yield "No side effect is recorded."
        original = self._compensates()
        if original is not None:
            yield f"It was to take back an effect of job {original}: that is void, and another one may be asked for."
        if history.key is not None:
            yield (
                f"Its idempotency key {history.key.key} answers for {history.key.ttl_seconds:.0f} s more; an enqueue "
                "with it after that is a new job."
            )
        yield from settling_lines(history.composition)
        yield "Nothing of it runs again, and this cannot be taken back."

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Settle it.

        Raises:
            ActionChangedError: The row is not what the plan saw.
        """
        finished = discard(self.job_id, revision=self.job().revision, using=self.using)
        if finished is None:
            msg = "The job changed while it was decided about; nothing was done."
            raise ActionChangedError(msg, plan=self.plan())
        close_after_commit(self.job().batch_id, using=self.using)
        return f"Job {self.job_id} was discarded at {instant(finished)}.", {"finished_at": plain(finished)}


def _refused(history: JobHistory) -> str:
    job = history.job
    if job.state != JobState.DEAD_LETTERED:
        return f"Only a dead letter can be discarded; this job is {job.state}."
    if job.resolution is not None:
        return f"The dead letter was {job.resolution} already; that decision stands."
    return ""


def _effect_facts(item: EffectHistory) -> dict[str, Any]:
    effect = item.effect
    return {
        "id": str(effect.pk),
        "name": effect.name,
        "state": effect.state,
        "revision": effect.revision,
        "sends": [send.outcome or "open" for send in item.sends],
        "asked": len(item.reconciliations),
    }


def _acknowledge(history: JobHistory) -> Iterator[Acknowledgement]:
    if history.job.state != JobState.DEAD_LETTERED:
        return
    yield Acknowledgement(name="state", label=f"The job is {state_in_words(history.job)}.")
    for item in history.effects:
        if item.effect.state not in _SETTLED and (item.sends or item.effect.needs_review):
            yield Acknowledgement(
                name=f"effect-{item.effect.pk}",
                label=f"Whether {_named(item)} was applied is not known, and nobody will ask any more.",
            )


def _named(item: EffectHistory) -> str:
    effect = item.effect
    return f"effect {effect.name} ({effect.business_key}) at {effect.provider}"
