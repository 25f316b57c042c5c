"""What became of the requests to cancel a job while it ran: heard, heeded after the attempt, or too late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django_jobs.domain.states import AttemptOutcome, DeadReason, JobState
from django_jobs.models import Attempt, CancelRequest, Job
from django_jobs.models.job import WAITING
from django_jobs.operate.wording import dead_reason, instant

if TYPE_CHECKING:
    from django_jobs.operate.history import JobHistory


class Fate(StrEnum):
    """What became of one request."""

    PENDING = "pending"
    HEARD = "heard"  # by the handler, which ended
    HEEDED = "heeded"  # the attempt ended otherwise, and the job was cancelled instead of running again
    TOO_LATE = "too_late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One request, what became of it, and a sentence about that."""

    request: CancelRequest
    fate: Fate
    text: str


def fate_of(request: CancelRequest, job: Job, attempts: tuple[Attempt, ...]) -> Told:
    """Say what became of a request, from the rows of its job."""
    mine = [attempt for attempt in attempts if attempt.generation == request.generation]
    last = mine[-1] if mine else None
    number = last.number if last else 0
    if last is not None and last.outcome == AttemptOutcome.CANCELLED:
        return Told(request=request, fate=Fate.HEARD, text=f"attempt {number} heard it and ended")
    if job.generation != request.generation:
        text = f"generation {request.generation}, for which it held, is over"
        return Told(request=request, fate=Fate.TOO_LATE, text=text)
    if job.state == JobState.RUNNING:
        return Told(request=request, fate=Fate.PENDING, text=f"attempt {number} has not ended yet")
    if job.state in WAITING:
        text = "the next attempt hears it first; 'manage.py jobs cancel' cancels the waiting job at once"
        return Told(request=request, fate=Fate.PENDING, text=text)
    how = last.outcome if last else "never began"
    if job.state == JobState.CANCELLED or job.dead_reason == DeadReason.CANCELLED:
        return Told(request=request, fate=Fate.HEEDED, text=f"heeded after attempt {number} ({how})")
    end = f"succeeded at {instant(job.finished_at)}" if job.state == JobState.SUCCEEDED else "left a dead letter"
    why = f" because {dead_reason(job.dead_reason)}" if job.state == JobState.DEAD_LETTERED else ""
    return Told(request=request, fate=Fate.TOO_LATE, text=f"too late: attempt {number} {end}{why}")


def fates(history: JobHistory) -> tuple[Told, ...]:
    """Say of each request to cancel the job what became of it."""
    return tuple(fate_of(request, history.job, history.attempts) for request in history.cancel_requests)


def cancel_lines(history: JobHistory) -> Iterator[str]:
    """Yield a line per request to cancel the job while it ran."""
    for told in fates(history):
        yield f"Somebody asked at {instant(told.request.created_at)} to cancel it while it ran: {told.text}."
