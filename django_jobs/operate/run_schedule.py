"""Running a schedule by hand: one more job, now, with who and why."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.db import OperationalError, transaction

from django_jobs.define.schedules import ScheduleDefinition, find_schedule
from django_jobs.domain.states import TickOutcome
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import ActionChangedError
from django_jobs.masking import described
from django_jobs.models import Schedule
from django_jobs.operate.action import Acknowledgement, Decision, Operator, Plan, Target
from django_jobs.operate.history import plain
from django_jobs.operate.schedule_arguments import ask
from django_jobs.operate.schedule_runner import enqueue_tick
from django_jobs.operate.wording import instant
from django_jobs.store.pauses import paused_schedules
from django_jobs.store.schedules import note_tick, set_last_job
from django_jobs.store.times import read_now

ARGUMENTS_WITHIN = 3.0  # seconds, inside the transaction of the decision


class ScheduleNotFoundError(LookupError):
    """No worker has ever announced a schedule of this name."""


class RunSchedule(Decision):
    """Enqueue the job of a schedule once more, now; its ticks stay as they are."""

    name = "run_schedule"
    permission = "run_schedule"

    def __init__(self, schedule: str, *, using: str) -> None:
        super().__init__(using=using)
        self.schedule = schedule

    def row(self) -> Schedule:
        """Read the schedule.

        Raises:
            ScheduleNotFoundError: There is none of this name.
        """
        found = Schedule.objects.using(self.using).filter(name=self.schedule).first()
        if found is None:
            msg = f"There is no schedule {self.schedule!r}; a worker that starts writes down what its code declares."
            raise ScheduleNotFoundError(msg)
        return found

    def plan(self) -> Plan:
        """Say what would be enqueued.

        Raises:
            ScheduleNotFoundError: There is none of this name.
        """
        row = self.row()
        declared = find_schedule(row.name)
        return Plan(
            action=self.name,
            title=f"Run the schedule {row.name} now",
            refused=_refused(row, declared),
            facts={
                "schedule": row.name,
                "job_type": row.job_type,
                "rule": row.rule,
                "settled_at": plain(row.settled_at),
                "last_job": plain(row.last_job_id),
            },
            lines=tuple(self._lines(row)),
            acknowledge=(_ONE_MORE,),
        )

    def _lines(self, row: Schedule) -> Iterator[str]:
        yield f"It enqueues one job of type {row.job_type}, beside what the schedule does by itself."
        yield f"Its next tick stays at {instant(row.next_tick)}." if row.next_tick else "It has no tick ahead."
        if pause := paused_schedules(using=self.using).get(row.name):
            yield f"It is paused by {pause.actor} ({pause.reason}); this job is enqueued all the same."

    def lock(self) -> None:
        """Lock the schedule, so that two people run it one after the other."""
        list(Schedule.objects.using(self.using).filter(name=self.schedule).select_for_update().values_list("name"))

    def target(self) -> Target:
        """Return nothing: the plan has the schedule."""
        return Target()

    def act(self, operator: Operator, action_id: uuid.UUID) -> tuple[str, Mapping[str, Any]]:  # noqa: ARG002
        """Enqueue the job, and keep this moment as a tick of its own.

        Raises:
            ActionChangedError: A tick took this very moment, or the code makes no arguments of it; nothing was done.
        """
        declared = find_schedule(self.schedule)
        # Ticks are whole seconds: this moment can be none of them, whatever the clock says.
        now = read_now(self.using)
        now = now.replace(microsecond=now.microsecond or 1)
        if declared is None:
            msg = f"This code does not declare the schedule {self.schedule!r}."
            raise ActionChangedError(msg)
        result = self._enqueued(declared, now, action_id)
        outcome = TickOutcome.ENQUEUED if result.created else TickOutcome.DUPLICATE
        if not note_tick(self.schedule, now, outcome, job_id=result.id, action_id=action_id, using=self.using):
            msg = "The schedule ticked at this very moment; look again."
            raise ActionChangedError(msg)
        set_last_job(self.schedule, result.id, using=self.using)
        said = "stands for it already" if outcome is TickOutcome.DUPLICATE else "is queued"
        return f"Job {result.id} {said}.", {"job": str(result.id), "outcome": outcome.value}

    def _enqueued(self, declared: ScheduleDefinition, now: datetime, action_id: uuid.UUID) -> EnqueueResult:
        """Ask the project's code for the arguments and enqueue; what it raises is said to whoever decides."""
        answer = ask(declared, [now], within=ARGUMENTS_WITHIN)[now]
        try:
            if isinstance(answer, BaseException):
                raise answer
            with transaction.atomic(using=self.using):
                return enqueue_tick(declared, now, answer, using=self.using, mark=f":{action_id.hex[-12:]}")
        except (OperationalError, ActionChangedError):
            raise
        except BaseException as error:
            told = described(error)
            msg = f"The job cannot be made: {told.type}: {told.message}. Nothing was done."
            raise ActionChangedError(msg) from error


_ONE_MORE = Acknowledgement(name="one_more", label="One more job runs than the schedule alone would run.")


def _refused(row: Schedule, declared: ScheduleDefinition | None) -> str:
    if declared is None:
        return "This code does not declare it, so nobody here knows the arguments of its job."
    if row.job_type not in declared.job.definition.names:
        own = declared.job.definition.job_type
        return f"This code declares it for {own}; another release has announced {row.job_type}."
    return ""
