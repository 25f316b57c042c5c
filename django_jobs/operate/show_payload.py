"""Showing a job's arguments, context and result as they are stored; everywhere else their secrets are masked."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from django_jobs.models import Job, JobPayload
from django_jobs.operate.action import Acknowledgement, Operator, Plan
from django_jobs.operate.job_decision import JobDecision
from django_jobs.operate.wording import instant

CONTENT = ("arguments", "context", "result")


class ShowPayload(JobDecision):
    """Show arguments, context and result of one job unmasked. Nothing changes; who looked, and why, stays on record."""

    name = "show_payload"
    permission = "view_job_payload"

    def plan(self) -> Plan:
        """Say what would be shown; holds nothing of it.

        Raises:
            JobNotFoundError: There is no such job.
        """
        job = self.job()
        stored = self._stored()
        present = [name for name in CONTENT if stored.get(name)]
        return Plan(
            action=self.name,
            title=f"Show the arguments, the context and the result of job {job.pk} ({job.job_type}) unmasked",
            refused=_refused(job, present),
            facts={
                "job": str(job.pk),
                "job_type": job.job_type,
                "payload_fingerprint": job.payload_fingerprint,
                "shown": present,
            },
            lines=("Nothing is changed. The audit keeps who looked, and why; it keeps nothing of what was shown.",),
            acknowledge=(_SECRETS,),
        )

    def _stored(self) -> dict[str, Any]:
        found = JobPayload.objects.using(self.using).filter(pk=self.job_id).values(*CONTENT).first()
        return dict(found or {})

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Read them; ``details`` holds each that is stored, as JSON values."""
        shown = {name: _value(text) for name, text in self._stored().items() if text}
        return f"{_listed(list(shown))} of job {self.job_id} shown unmasked.".capitalize(), shown


_SECRETS = Acknowledgement(
    name="secrets", label="They may hold secrets and personal data, and I need to see them for the reason that I give."
)


def _refused(job: Job, present: list[str]) -> str:
    if job.content_removed_at is not None:
        return f"They were removed at {instant(job.content_removed_at)}; there is nothing to show."
    return "" if present else "Nothing is stored of them."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
