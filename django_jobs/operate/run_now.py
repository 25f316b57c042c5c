"""Running now what waits for its time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.domain.lanes import is_aside, kind_in
from django_jobs.domain.states import JobState, PauseKind
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Job
from django_jobs.operate.action import Operator, Plan
from django_jobs.operate.history import plain
from django_jobs.operate.job_decision import JobDecision, basic_facts
from django_jobs.operate.wording import instant
from django_jobs.store.decisions import run_now
from django_jobs.store.pauses import pauses
from django_jobs.store.times import read_now


class RunNow(JobDecision):
    """Queue a scheduled or failed job at once instead of when it is due."""

    name = "run_now"
    permission = "reschedule_job"

    def plan(self) -> Plan:
        """Say what would be run now.

        Raises:
            JobNotFoundError: There is no such job.
        """
        job = self.job()
        return Plan(
            action=self.name,
            title=f"Run job {job.pk} ({job.job_type}) now",
            refused=self._refused(job),
            facts={**basic_facts(job), "available_at": plain(job.available_at), "lane": job.lane},
            lines=tuple(self._lines(job)),
        )

    def _refused(self, job: Job) -> str:
        if job.state not in (JobState.SCHEDULED, JobState.FAILED):
            return f"Only a job that waits for its time can be run now; this job is {job.state}."
        if is_aside(job.lane):
            return f"Nobody may or can run {kind_in(job.lane)!r} now: resume its type, or start a worker that knows it."
        if job.useful_until is not None and job.useful_until <= read_now(self.using):
            return f"It was useful until {instant(job.useful_until)} only."
        return ""

    def _lines(self, job: Job) -> Iterator[str]:
        yield f"It is {job.state}, due at {instant(job.available_at)}, after {job.fence} attempts."
        if job.waiting_since is not None:
            yield "It waits for evidence about a side effect; asking earlier may find nothing, and then it waits again."
        for row in pauses(using=self.using):
            if row.kind == PauseKind.QUEUE and row.name == job.queue_name:
                yield f"Its queue {row.name} is paused by {row.actor}: it starts after that."
        yield "No budget is charged, no counter changes."

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Queue it.

        Raises:
            ActionChangedError: The row is not what the plan saw.
        """
        if not run_now(self.job_id, revision=self.job().revision, using=self.using):
            msg = "The job changed while it was decided about; nothing was done."
            raise ActionChangedError(msg, plan=self.plan())
        return f"Job {self.job_id} is queued.", {"state": JobState.QUEUED.value}
