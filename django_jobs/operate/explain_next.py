"""What happens to a job next and when, or why it waits for a human."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.lanes import is_aside, kind_in, waits_for_turn
from django_jobs.domain.served import Served
from django_jobs.domain.states import AttemptOutcome, JobState, PauseKind
from django_jobs.masking import redactor
from django_jobs.models import Job, OperatorAction, SerialTurn, Worker
from django_jobs.operate.history import JobHistory
from django_jobs.operate.resource_status import resource_lines
from django_jobs.operate.wording import LOSS, dead_reason, instant, relative
from django_jobs.store.limits import limits_of
from django_jobs.store.pauses import pauses
from django_jobs.store.resources import stands


def next_lines(history: JobHistory) -> Iterator[str]:
    """Yield what is next for the job, and what stands in its way."""
    yield from _NEXT[JobState(history.job.state)](history)
    if history.job.state in {JobState.SCHEDULED, JobState.QUEUED, JobState.FAILED}:
        yield from _obstacles(history)


def _scheduled(history: JobHistory) -> Iterator[str]:
    due = relative(history.job.available_at, history.read_at)
    since = history.job.waiting_since
    if is_aside(history.job.lane):
        yield f"It is set aside: nobody may or can run {kind_in(history.job.lane)!r} now; due since {due}."
    elif since is not None:
        yield f"It waits for evidence about a side effect since {instant(since)}; it asks again at {due}."
    else:
        yield f"It starts when it is due, at {due}."


def _queued(history: JobHistory) -> Iterator[str]:
    if waits_for_turn(history.job.lane):
        yield f"It waits for its turn; due since {relative(history.job.available_at, history.read_at)}."
        yield from _turn_lines(history)
        return
    yield f"It can start now; due since {relative(history.job.available_at, history.read_at)}."


def _turn_lines(history: JobHistory) -> Iterator[str]:
    key = history.job.serial_key
    turn = SerialTurn.objects.using(history.using).filter(key=key).first()
    holder = Job.objects.using(history.using).filter(pk=turn.job_id).first() if turn and turn.job_id else None
    if holder is None:
        yield f"Nobody has the turn of {key!r}; a worker gives it within seconds."
    elif holder.state == JobState.DEAD_LETTERED:
        yield f"Job {holder.pk} has the turn of {key!r} and is a dead letter: replay or discard it, and others go on."
    else:
        yield f"Job {holder.pk} has the turn of {key!r}; it is {holder.state}."


def _failed(history: JobHistory) -> Iterator[str]:
    last = history.attempts[-1] if history.attempts else None
    if last is not None and last.outcome == "lost":
        yield f"The last attempt was {LOSS}."
    yield f"The next attempt is due at {relative(history.job.available_at, history.read_at)}."


def _running(history: JobHistory) -> Iterator[str]:
    job = history.job
    if job.lease_expires_at is None or job.lease_owner is None:
        yield "It runs without a lease (run 'manage.py jobs verify')."
        return
    lease = relative(job.lease_expires_at, history.read_at)
    if job.lease_expires_at > history.read_at:
        yield f"It is running; its lease ends at {lease}."
    else:
        yield f"It is running past its lease, which ended at {lease}; a worker takes it back soon."
    worker = Worker.objects.using(history.using).filter(pk=job.lease_owner).first()
    if worker is None:
        yield "The worker that holds it has left no row."
    else:
        stopped = ", and it has stopped" if worker.stopped_at else ""
        yield f"Its worker {worker.name} was last heard of {relative(worker.heartbeat_at, history.read_at)}{stopped}."
    if job.progress is not None:
        yield f"Progress: {job.progress}" + (f" of {job.progress_total}." if job.progress_total is not None else ".")


def _dead(history: JobHistory) -> Iterator[str]:
    job = history.job
    if job.resolution is not None:
        yield f"Nothing: the dead letter was {job.resolution} at {instant(job.finished_at)}."
        return
    yield (
        f"Nothing by itself: it waits for a human since {instant(job.dead_at)} because {dead_reason(job.dead_reason)} "
        f"({job.dead_reason})."
    )
    first = next((attempt for attempt in history.attempts if attempt.outcome == AttemptOutcome.FAILED), None)
    if first is not None and first.number < job.fence:
        said = " ".join(redactor().text(first.message).split())[:300]
        kind = f"{first.error_type}: {said}" if said else f"{first.error_type}."
        yield f"Its first error, in attempt {first.number} of {job.fence}: {kind}"
    if job.error_type:
        text = redactor().text(history.payload.error_text) if history.payload else ""
        yield f"Its last error: {job.error_type}" + (f": {' '.join(text.split())[:300]}" if text else ".")
    failed_under = history.attempts[-1].code_version if history.attempts else ""
    definition = registry.find(job.job_type)
    if definition is not None and failed_under and definition.code_version() == failed_under:
        yield "The code here is the same as the code that failed."


def _succeeded(history: JobHistory) -> Iterator[str]:
    yield f"Nothing: it succeeded at {instant(history.job.finished_at)}, and nothing undoes that."


def _cancelled(history: JobHistory) -> Iterator[str]:
    yield f"Nothing: it was cancelled at {instant(history.job.finished_at)}{_by_whom(history)}."


def _by_whom(history: JobHistory) -> str:
    actions = OperatorAction.objects.using(history.using).filter(job_id=history.job.pk, action="cancel")
    last = actions.order_by("-id").first()
    if last is None:
        return " by its own handler"
    return f" on the word of {last.actor}: {redactor().text(last.reason).rstrip('.')}"


_NEXT = {
    JobState.SCHEDULED: _scheduled,
    JobState.QUEUED: _queued,
    JobState.RUNNING: _running,
    JobState.FAILED: _failed,
    JobState.SUCCEEDED: _succeeded,
    JobState.DEAD_LETTERED: _dead,
    JobState.CANCELLED: _cancelled,
}


def _obstacles(history: JobHistory) -> Iterator[str]:
    job = history.job
    if job.isolation:
        where = "on its worker" if job.isolation == "worker" else "in its process"
        yield f"After losses it must run alone {where}."
    if job.useful_until is not None:
        end = relative(job.useful_until, history.read_at)
        yield f"If it has not started by {end}, it is dead-lettered."
    yield from _held_back(history)
    alive = _alive(history)
    serving = [worker for worker in alive if job.queue_name in Served.from_text(worker.queues)]
    if not serving:
        yield f"No live worker serves queue {job.queue_name!r}."
    elif not any(job.job_type in json.loads(worker.job_types) for worker in serving):
        yield f"No live worker of queue {job.queue_name!r} knows job type {job.job_type!r}."


_KINDS = {PauseKind.QUEUE: "Queue", PauseKind.TYPE: "Job type", PauseKind.RESOURCE: "Resource"}


def _held_back(history: JobHistory) -> Iterator[str]:
    job = history.job
    names = {PauseKind.QUEUE: job.queue_name, PauseKind.TYPE: job.job_type}
    if job.resource:
        names[PauseKind.RESOURCE] = job.resource
    for row in pauses(using=history.using):
        if names.get(PauseKind(row.kind)) == row.name:
            what = _KINDS[PauseKind(row.kind)]
            end = f" until {relative(row.paused_until, history.read_at)}" if row.paused_until else ""
            yield f"{what} {row.name!r} is paused by {row.actor} since {instant(row.created_at)}{end}: {row.reason}"
    limit = limits_of([job.queue_name]).get(job.queue_name)
    if limit is not None:
        running = Job.objects.using(history.using).filter(state="running", queue_name=job.queue_name).count()
        if running >= limit:
            yield f"Queue {job.queue_name!r} runs at most {limit} at once, and {running} run now."
    if job.resource:
        yield from resource_lines(stands([job.resource], using=history.using)[job.resource], job.resource)


def _alive(history: JobHistory) -> list[Worker]:
    rules = get_settings()
    return list(
        Worker.objects.using(history.using).filter(
            stopped_at__isnull=True, stopping_at__isnull=True, heartbeat_at__gt=history.read_at - rules.silent_after
        )
    )
