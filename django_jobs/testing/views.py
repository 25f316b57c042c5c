"""Looking at a job from a test: its state now, its attempts and its effects; and at all rows, by the rules."""

from __future__ import annotations

import json
import uuid
from typing import Any

from django_jobs.exceptions import KitError
from django_jobs.models import Attempt, Job, SideEffect
from django_jobs.operate.verify import verify
from django_jobs.testing.reports import AttemptReport

_SHOWN = 5  # ids of what violates one invariant


class JobView:
    """One job, read anew for each question."""

    def __init__(self, job_id: uuid.UUID, *, using: str) -> None:
        self.id = job_id
        self._using = using
        self._read()

    @property
    def state(self) -> str:
        """Its state, for example ``succeeded``."""
        return self._read().state

    @property
    def dead_reason(self) -> str:
        """Why it is a dead letter; empty if it is none."""
        return self._read().dead_reason

    @property
    def result(self) -> Any:
        """What its handler returned, as JSON gives it back; None without a result."""
        stored = self._read().payload.result
        return json.loads(stored) if stored is not None else None

    @property
    def attempts(self) -> list[AttemptReport]:
        """Its attempts, oldest first; one that is still open has no outcome."""
        found = Attempt.objects.using(self._using).select_related("job__payload").filter(job_id=self.id)
        return [AttemptReport.of(attempt) for attempt in found.order_by("number")]

    @property
    def effects(self) -> list[SideEffect]:
        """Its recorded effects, oldest first."""
        return list(SideEffect.objects.using(self._using).filter(job_id=self.id).order_by("created_at", "pk"))

    def __repr__(self) -> str:
        job = self._read()
        return f"<{job.job_type} {job.pk}: {job.state}>"

    def _read(self) -> Job:
        found = Job.objects.using(self._using).select_related("payload").filter(pk=self.id).first()
        if found is None:
            msg = f"There is no job {self.id} in the database {self._using!r}."
            raise KitError(msg)
        return found


def check_invariants(using: str) -> None:
    """Check every invariant on the rows as they are.

    Raises:
        AssertionError: One does not hold.
    """
    lines = []
    for item in verify(using=using).violated:
        more = f" and {len(item.ids) - _SHOWN} more" if len(item.ids) > _SHOWN else ""
        lines.append(
            f"  {item.invariant.name}, {item.invariant.meaning}. This {item.invariant.about} violates it: "
            f"{', '.join(item.ids[:_SHOWN])}{more}"
        )
    if lines:
        raise AssertionError("The rows contradict the rules that must always hold:\n" + "\n".join(lines))
