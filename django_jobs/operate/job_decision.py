"""What decisions about one job share: the row, the locks, and how the operator's own figures are checked."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.durations import LONGEST
from django_jobs.domain.states import CompensationOutcome
from django_jobs.exceptions import OperatorError
from django_jobs.models import Job, Worker
from django_jobs.operate.action import Decision, Target
from django_jobs.operate.lookup import find_job
from django_jobs.operate.wording import instant
from django_jobs.store.decisions import lock_job, standing_compensations
from django_jobs.store.times import read_now

MOST_EXTRA = 100


class JobDecision(Decision):
    """A decision about one job: its row and the rows of its effects are locked, the job first."""

    def __init__(self, job_id: uuid.UUID, *, using: str) -> None:
        super().__init__(using=using)
        if not isinstance(job_id, uuid.UUID):
            msg = f"A decision is about the id of a job, a UUID, not {job_id!r}."
            raise OperatorError(msg)
        self.job_id = job_id

    def job(self) -> Job:
        """Read the job as it is now.

        Raises:
            JobNotFoundError: There is none.
        """
        found = Job.objects.using(self.using).filter(pk=self.job_id).first()
        return found or find_job(str(self.job_id), using=self.using)  # raises, and says whether it was pruned

    def lock(self) -> None:
        """Lock the job and its effects."""
        lock_job(self.job_id, using=self.using)

    def target(self) -> Target:
        """Name the job as it is before the decision."""
        job = self.job()
        return Target(job_id=job.pk, from_state=job.state, from_revision=job.revision, from_generation=job.generation)

    def taken_back(self) -> str:
        """Say why nothing may be decided about the job while an effect of it is taken back; empty: none is."""
        return refused_by_compensation(standing_compensations([self.job_id], using=self.using).get(self.job_id, ()))


def refused_by_compensation(standing: Any) -> str:
    """Say what stands of a job's compensations; empty: nothing."""
    for row in sorted(standing, key=lambda row: row.outcome == CompensationOutcome.VOID):
        if row.outcome == CompensationOutcome.VOID:
            return (
                f"An effect of this job was taken back by job {row.job_id}, although that was given up before it was "
                f"known. Ask for its compensation once more ('manage.py jobs compensate {row.effect_id}'): that sends "
                "nothing and only records it. Nothing else is done to the job."
            )
        is_open = row.outcome == "open"
        return (
            f"An effect of this job {'is being' if is_open else 'was'} taken back by job {row.job_id}"
            f"{'; wait for it, or discard it' if is_open else ''}. Nothing else is done to the job."
        )
    return ""


def basic_facts(job: Job) -> dict[str, Any]:
    """Return what every decision about a job depends on."""
    return {
        "job": str(job.pk),
        "job_type": job.job_type,
        "state": job.state,
        "revision": job.revision,
        "generation": job.generation,
        "fence": job.fence,
    }


def state_in_words(job: Job) -> str:
    """Say in one sentence where a dead letter stands."""
    last = f", last error {job.error_type}" if job.error_type else ""
    return f"dead-lettered since {instant(job.dead_at)} ({job.dead_reason}), attempts so far: {job.fence}{last}"


def live_code(job_type: str, *, using: str) -> list[str]:
    """Return the code versions that live workers run; what they do not tell is taken to be this process's own."""
    rules = get_settings()
    alive = Worker.objects.using(using).filter(
        stopped_at__isnull=True, stopping_at__isnull=True, heartbeat_at__gt=read_now(using) - rules.silent_after
    )
    told = set()
    workers = list(alive.values_list("code_version", "job_types"))
    for version, types in workers:
        if job_type in json.loads(types) or not json.loads(types):
            told.add(version)
    if not told or "" in told:
        definition = registry.find(job_type)
        told.discard("")
        told |= {definition.code_version()[:64]} if definition else set()
    return sorted(told)


def checked_extra(value: object) -> int:
    """Return a number of extra attempts.

    Raises:
        OperatorError: It is no whole number from 0 to 100.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_EXTRA:
        msg = f"extra_attempts must be a whole number from 0 to {MOST_EXTRA}, not {value!r}."
        raise OperatorError(msg)
    return value


def checked_start(value: object) -> datetime | timedelta | None:
    """Return when a job may start: an instant, a span from now, or None for at once.

    Raises:
        OperatorError: It is none of them.
    """
    if isinstance(value, datetime) and value.utcoffset() is not None:
        try:
            return value.astimezone(UTC)
        except OverflowError:
            pass
    elif value is None or (isinstance(value, timedelta) and timedelta(0) <= value <= LONGEST):
        return value
    msg = f"run_after must be an aware datetime or a timedelta from 0 to {LONGEST.days} days, not {value!r}."
    raise OperatorError(msg)


def checked_useful(value: object) -> timedelta | None:
    """Return how long a result is worth something.

    Raises:
        OperatorError: It is neither None nor a timedelta from a second to ten years.
    """
    if value is None or (isinstance(value, timedelta) and timedelta(seconds=1) <= value <= LONGEST):
        return value
    msg = f"useful_for must be a timedelta from one second to {LONGEST.days} days, not {value!r}."
    raise OperatorError(msg)
