"""Ending a lease that is wrong: of a job that stands in ``running`` although nobody works on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.domain.states import JobState
from django_jobs.exceptions import ActionChangedError
from django_jobs.models import Job, Worker
from django_jobs.operate.action import Acknowledgement, Operator, Plan
from django_jobs.operate.history import plain
from django_jobs.operate.job_decision import JobDecision, basic_facts
from django_jobs.operate.wording import LOSS, duration, instant
from django_jobs.store.decisions import expire_lease
from django_jobs.store.times import read_now


class ExpireLease(JobDecision):
    """Let the lease of a running job end now. After the patience of the settings a reaper takes the job back.

    The attempt then counts as lost with an expired lease: it is charged to no error budget and makes no suspect. Until
    then its holder may still finish or renew it; its decisions are refused from the moment at which the job is taken.
    """

    name = "expire_lease"
    permission = "expire_job_lease"

    def plan(self) -> Plan:
        """Say whose lease would end.

        Raises:
            JobNotFoundError: There is no such job.
        """
        job = self.job()
        return Plan(
            action=self.name,
            title=f"End the lease of job {job.pk} ({job.job_type})",
            refused=self._refused(job),
            facts={
                **basic_facts(job),
                "attempt": str(job.attempt_id),
                "worker": str(job.lease_owner),
                "lease_expires_at": plain(job.lease_expires_at),
            },
            lines=tuple(self._lines(job)),
            acknowledge=(
                Acknowledgement(name="holder", label=f"The attempt may still be at work, and its end is then {LOSS}."),
            ),
        )

    def _refused(self, job: Job) -> str:
        if job.state != JobState.RUNNING or job.lease_expires_at is None:
            return f"Only a running job has a lease; this job is {job.state}."
        if job.lease_expires_at <= read_now(self.using):
            return f"Its lease ended at {instant(job.lease_expires_at)} already; a worker takes it back soon."
        return ""

    def _lines(self, job: Job) -> Iterator[str]:
        if job.lease_expires_at is None or job.lease_owner is None:
            return
        yield f"Attempt {job.fence} holds it until {instant(job.lease_expires_at)}."
        worker = Worker.objects.using(self.using).filter(pk=job.lease_owner).first()
        if worker is None:
            yield "The worker that holds it has left no row."
        else:
            stopped = f", stopped at {instant(worker.stopped_at)}" if worker.stopped_at else ""
            yield f"Its worker is {worker.name}, last heard of at {instant(worker.heartbeat_at)}{stopped}."
        yield (
            f"The job is taken back {duration(get_settings().expired_patience)} after the end of the lease, if its "
            "holder does not finish or renew it before."
        )

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """End the lease.

        Raises:
            ActionChangedError: The row is not what the plan saw.
        """
        job = self.job()
        held = job.attempt_id
        if held is None or not expire_lease(self.job_id, attempt_id=held, revision=job.revision, using=self.using):
            msg = "The job changed while it was decided about; nothing was done."
            raise ActionChangedError(msg, plan=self.plan())
        return f"The lease of job {self.job_id} is over.", {"attempt": str(held)}
