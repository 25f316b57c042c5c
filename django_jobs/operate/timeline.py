"""Everything that happened to one job in the order of time, from all the rows that tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from django_jobs.domain.redaction import Redactor
from django_jobs.domain.states import AttemptOutcome
from django_jobs.masking import redactor
from django_jobs.models import Attempt, Compensation, InboxMessage, OperatorAction, OutboxEvent
from django_jobs.operate.explain_attempts import ending
from django_jobs.operate.explain_effects import answer, asker, found, named
from django_jobs.operate.history import EffectHistory, JobHistory
from django_jobs.operate.wording import counted, exit_text, instant

FIRST, LAST = 5, 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that happened. ``kind`` is one of the constants below; ``details`` is a long text, such as a traceback.

    ``grave`` marks what may need somebody: failures, losses, and requests of unknown outcome.
    """

    at: datetime
    kind: str
    text: str
    details: str = ""
    grave: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The first and the last entries, and how many between them are left out."""

    first: tuple[Entry, ...]
    left_out: int
    last: tuple[Entry, ...]


JOB, ATTEMPT, EFFECT, DUPLICATE, DECISION, EVENT = "job", "attempt", "effect", "duplicate", "decision", "event"
_ORDER = (JOB, DECISION, ATTEMPT, EFFECT, EVENT, DUPLICATE)  # of what happened in the same microsecond


def timeline(history: JobHistory, *, whole: bool = False) -> Timeline:
    """Merge what happened; without ``whole``, the middle of a long story is left out."""
    mask = redactor()
    entries = [*_job(history), *_attempts(history, mask), *_duplicates(history)]
    for item in history.effects:
        entries += _effect(item, history, mask)
    entries += _adopted(history)
    entries += _decisions(history, mask)
    entries += _events(history)
    entries.sort(key=lambda entry: (entry.at, _ORDER.index(entry.kind)))
    if whole or len(entries) <= FIRST + LAST:
        return Timeline(first=tuple(entries), left_out=0, last=())
    return Timeline(first=tuple(entries[:FIRST]), left_out=len(entries) - FIRST - LAST, last=tuple(entries[-LAST:]))


def _job(history: JobHistory) -> Iterator[Entry]:
    job = history.job
    yield Entry(at=job.created_at, kind=JOB, text=f"Enqueued in queue {job.queue_name}.")
    for step in history.steps:
        yield Entry(at=step.created_at, kind=JOB, text=f"Step {step.name} done by attempt {step.fence}.")
    if job.dead_at is not None:
        text = f"Dead-lettered ({job.dead_reason})."
        yield Entry(at=job.dead_at, kind=JOB, text=text, grave=True)
    if job.finished_at is not None:
        yield Entry(at=job.finished_at, kind=JOB, text=f"Finished: {job.resolution or job.state}.")
    if job.content_removed_at is not None:
        yield Entry(at=job.content_removed_at, kind=JOB, text="Its content was removed.")


def _attempts(history: JobHistory, mask: Redactor) -> Iterator[Entry]:
    for attempt in history.attempts:
        worker = attempt.worker_name or str(attempt.worker_id)
        yield Entry(
            at=attempt.started_at,
            kind=ATTEMPT,
            text=f"Attempt {attempt.number} claimed by worker {worker}, child {attempt.worker_child}"
            f"{f', code {attempt.code_version}' if attempt.code_version else ''}.",
        )
        if attempt.finished_at is not None:
            yield _end(attempt, attempt.finished_at, history, mask)
        if attempt.refused_at is not None:
            text = (
                f"Attempt {attempt.number}: {counted(attempt.refused_count, 'late write')} refused, the last "
                f"{attempt.refused_operation!r}."
            )
            yield Entry(at=attempt.refused_at, kind=ATTEMPT, text=text, grave=True)


def _end(attempt: Attempt, at: datetime, history: JobHistory, mask: Redactor) -> Entry:
    grave = attempt.outcome in (AttemptOutcome.FAILED, AttemptOutcome.LOST)
    details = mask.text(attempt.traceback)
    if attempt.outcome == AttemptOutcome.LOST and attempt.exit_status is not None and not details:
        details = exit_text(attempt.exit_status)
    return Entry(
        at=at,
        kind=ATTEMPT,
        text=f"Attempt {attempt.number} {ending(attempt, history, mask)}",
        details=details,
        grave=grave,
    )


def _effect(item: EffectHistory, history: JobHistory, mask: Redactor) -> Iterator[Entry]:
    name = named(item.effect)
    yield Entry(at=item.effect.created_at, kind=EFFECT, text=f"Effect {name} planned.")
    for send in item.sends:
        by = f"attempt {send.fence}" + (f" of job {send.job_id}" if send.job_id != history.job.pk else "")
        yield Entry(
            at=send.started_at,
            kind=EFFECT,
            text=f"Effect {name}: send {send.number} by {by}: {answer(send, mask)}.",
            grave=send.outcome in (None, "unknown"),
        )
    for question in item.reconciliations:
        text = f"Effect {name}: asked {asker(question, history)}: {found(question)}."
        yield Entry(at=question.created_at, kind=EFFECT, text=text)
    for adoption in item.adoptions:
        yield Entry(at=adoption.created_at, kind=EFFECT, text=f"Effect {name}: job {adoption.job_id} took its receipt.")


def _adopted(history: JobHistory) -> Iterator[Entry]:
    for item in history.adopted:
        for adoption in item.adoptions:
            if adoption.job_id == history.job.pk:
                text = f"Took the receipt of effect {named(item.effect)} from job {item.effect.job_id}."
                yield Entry(at=adoption.created_at, kind=EFFECT, text=text)


def _duplicates(history: JobHistory) -> Iterator[Entry]:
    for row in history.duplicates:
        text = "A later enqueue with the same key was answered with this job."
        yield Entry(at=row.created_at, kind=DUPLICATE, text=text)


def _decisions(history: JobHistory, mask: Redactor) -> Iterator[Entry]:
    using, key = history.using, history.job.pk
    for action in actions_of(history):
        ticket = f", ticket {action.ticket}" if action.ticket else ""
        text = (
            f"{action.action.replace('_', ' ').capitalize()} decided by {action.actor} for {action.owner}"
            f" ({action.reason_code.replace('_', ' ')}{ticket}): {mask.text(action.reason)}"
        )
        yield Entry(at=action.created_at, kind=DECISION, text=text)
    for request in history.cancel_requests:
        text = f"Asked to end as cancelled (generation {request.generation})."
        yield Entry(at=request.created_at, kind=DECISION, text=text)
    for row in Compensation.objects.using(using).filter(Q(original_job_id=key) | Q(job_id=key)):
        other = f"by job {row.job_id}" if row.original_job_id == key else f"of job {row.original_job_id}"
        yield Entry(
            at=row.created_at, kind=DECISION, text=f"Compensation {other} of effect {row.effect_id}: {row.outcome}."
        )


def actions_of(history: JobHistory) -> Sequence[OperatorAction]:
    """Return what people decided about a job and its effects, oldest first."""
    effects = [item.effect.pk for item in history.effects]
    about = Q(job_id=history.job.pk) | Q(effect_id__in=effects) if effects else Q(job_id=history.job.pk)
    return list(OperatorAction.objects.using(history.using).filter(about).defer("plan").order_by("id"))


def _events(history: JobHistory) -> Iterator[Entry]:
    using, key = history.using, history.job.pk
    for event in OutboxEvent.objects.using(using).filter(job_id=key).defer("data").order_by("id"):
        text = (
            f"Event {event.type} v{event.version} published with attempt {event.fence}, to "
            f"{counted(event.routed_count, 'destination')}."
        )
        yield Entry(at=event.created_at, kind=EVENT, text=text)
    for message in InboxMessage.objects.using(using).filter(job_id=key):
        text = f"Made for message {message.message_id} of {message.source}, kept until {instant(message.keep_until)}."
        yield Entry(at=message.received_at, kind=EVENT, text=text)
