"""Cancelling a job: a waiting one at once, a running one by a request that its holder hears (ruling of the fastest)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.define import registry
from django_jobs.domain.states import JobState
from django_jobs.enqueue.closing import close_after_commit
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import CancelRequest, Job, JobPayload, SideEffect
from django_jobs.models.job import WAITING
from django_jobs.operate.action import Acknowledgement, Operator, Plan
from django_jobs.operate.composition import composition_of, settling_lines
from django_jobs.operate.job_decision import JobDecision
from django_jobs.store import cancel, request_cancel
from django_jobs.store.compensations import why_not_void

_NOT_APPLIED = ("planned", "rejected")
_MAY_BE_APPLIED: dict[str, str] = {
    "in_flight": "a request is out and no answer is recorded",
    "ambiguous": "whether it was applied is not known",
    "succeeded": "it was applied",
    "abandoned": "it was given up without knowing",
}


class Cancel(JobDecision):
    """Cancel one job. It ends cancelled if nothing it did to the world may stand, else as a dead letter for a human.

    Args:
        job_id: The job.
        using: The database.
    """

    name = "cancel"
    permission = "cancel_job"

    def plan(self) -> Plan:
        """Say how the job would end now; reads only.

        Raises:
            JobNotFoundError: There is no such job.
        """
        job = self.job()
        effects = list(SideEffect.objects.using(self.using).filter(job_id=job.pk).order_by("created_at", "id"))
        refused = self._refused(job)
        running = job.state == JobState.RUNNING
        touched = [effect for effect in effects if effect.state not in _NOT_APPLIED]
        facts: dict[str, Any] = {
            "job": str(job.pk),
            "type": job.job_type,
            "state": job.state,
            "generation": job.generation,
            "attempt": job.fence,
        }
        if not running:  # while it runs, its effects change, and what they mean is judged when the attempt ends
            facts["revision"] = job.revision
            facts["effects"] = [[str(effect.pk), effect.state, effect.revision] for effect in effects]
            facts["ends"] = (JobState.DEAD_LETTERED if touched else JobState.CANCELLED).value
        return Plan(
            action=self.name,
            title=f"Cancel job {job.pk} ({job.job_type}), which is {job.state.replace('_', ' ')}",
            refused=refused,
            facts=facts,
            lines=() if refused else (*_lines(job, touched), *self._others(job)),
            acknowledge=() if refused or running or not touched else (_STAYS,),
        )

    def _others(self, job: Job) -> Iterator[str]:
        payload = JobPayload.objects.using(self.using).filter(job_id=job.pk).first()
        return settling_lines(composition_of(job, payload, using=self.using))

    def _refused(self, job: Job) -> str:
        if job.state == JobState.DEAD_LETTERED and job.resolution is None:
            return "It is a dead letter already and will not run by itself; discard it, or replay it."
        if job.state not in (*WAITING, JobState.RUNNING):
            end = f"dead letter that was {job.resolution}" if job.resolution else job.state
            return f"It has ended ({end}); there is nothing to cancel."
        if taken_back := self.taken_back():
            return taken_back
        asked = CancelRequest.objects.using(self.using).filter(job_id=job.pk, generation=job.generation)
        if job.state == JobState.RUNNING and asked.exists():
            return (
                "That was asked for already; the attempt hears it, or the job is cancelled when the attempt has ended."
            )
        return why_not_void(job.pk, way="Let it run", using=self.using)

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Cancel the waiting job, or leave the request for whoever runs it.

        Raises:
            ActionChangedError: The job has moved on.
        """
        job = self.job()
        if job.state == JobState.RUNNING:
            request_cancel(job.pk, generation=job.generation, action_id=action_id, using=self.using)
            said = f"Asked attempt {job.fence} to end. {_hearing(job)}"
            return said, {"state": job.state, "requested": True}
        state = cancel(job.pk, using=self.using)
        if state is None:
            msg = "The job moved on; nothing was done."
            raise ActionChangedError(msg)
        close_after_commit(job.batch_id, using=self.using)
        said = (
            "Cancelled."
            if state is JobState.CANCELLED
            else "It is a dead letter now (reason: cancelled): a side effect may stand; compensate or discard."
        )
        return said, {"state": state.value, "requested": False}


_STAYS = Acknowledgement(
    name="effects",
    label="A side effect of this job may have been applied and stays; the job becomes a dead letter for a human.",
)


def _lines(job: Job, touched: list[SideEffect]) -> tuple[str, ...]:
    return _running_lines(job) if job.state == JobState.RUNNING else _waiting_lines(touched)


def _waiting_lines(touched: list[SideEffect]) -> tuple[str, ...]:
    if not touched:
        return (
            "It ends cancelled and never runs again.",
            "If it has an idempotency key, that answers duplicates as long as after a success.",
        )
    return (
        "It becomes a dead letter (reason: cancelled), because these side effects may have been applied.",
        "A human decides then: compensate or discard.",
        *(
            f"  {effect.name} ({effect.business_key}) at {effect.provider}: {_MAY_BE_APPLIED[effect.state]}"
            for effect in touched
        ),
    )


def _running_lines(job: Job) -> tuple[str, ...]:
    return (
        f"Attempt {job.fence} runs. {_hearing(job)}",
        "Whoever commits first wins: if the attempt succeeds, or ends as a dead letter, the request was too late.",
        "If the attempt fails, is snoozed, given back or lost, the job is cancelled instead of running again.",
        "It ends cancelled if no side effect may have been applied, else as a dead letter (reason: cancelled).",
    )


def _hearing(job: Job) -> str:
    definition = registry.find(job.job_type)
    if definition is None:
        return "If its handler takes a context, it hears that within about a second."
    if definition.takes_context:
        return "Its handler hears that within about a second, the next time it uses its context."
    return "Its handler takes no context and cannot hear it: it goes on to its end, and a success then stands."
