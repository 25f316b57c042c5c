"""One job in plain English: what was intended, who claimed it, what happened, what is next, is a replay safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from django_jobs.domain.canonical import canonical
from django_jobs.domain.states import AttemptOutcome, JobState
from django_jobs.masking import redactor
from django_jobs.models import Job
from django_jobs.operate.cancel_requests import cancel_lines
from django_jobs.operate.composition import belonging_lines, following_lines
from django_jobs.operate.explain_attempts import attempt_lines
from django_jobs.operate.explain_effects import effect_lines
from django_jobs.operate.explain_next import next_lines
from django_jobs.operate.history import JobHistory, history_of, shown_json
from django_jobs.operate.replay_plan import OnReplay, ReplayPlan, plan_replay
from django_jobs.operate.wording import duration, instant

_PAYLOAD_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and the sentences below it."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A job's story; secrets are masked."""

    job_id: str
    sections: tuple[Section, ...]
    replay: ReplayPlan


def explain(job: Job, *, using: str) -> Explanation:
    """Tell the story of one job; reads only."""
    return told(history_of(job, using=using))


def told(history: JobHistory) -> Explanation:
    """Tell the story of one job from what was read of it."""
    plan = plan_replay(history)
    sections = (
        Section(title="What was intended", lines=tuple(_intended(history))),
        Section(title="Who claimed it", lines=(*attempt_lines(history), *cancel_lines(history))),
        Section(title="What happened to each side effect", lines=tuple(effect_lines(history))),
        *decided_sections(history),
        Section(title="What is next", lines=(*next_lines(history), *following_lines(history.composition))),
        Section(title="Would a replay be safe", lines=tuple(_replay(history, plan))),
    )
    return Explanation(job_id=str(history.job.pk), sections=sections, replay=plan)


def decided_sections(history: JobHistory) -> Iterator[Section]:
    """Yield what people decided about the job, if they did."""
    if history.actions:
        yield Section(title="What people decided", lines=tuple(_decided(history)))


def _decided(history: JobHistory) -> Iterator[str]:
    mask = redactor()
    for action in history.actions:
        ticket = f" ({action.ticket})" if action.ticket else ""
        many = f", as part of replay request {action.request_id}" if action.request_id else ""
        what = f"{action.action.replace('_', ' ')} of generation {action.from_generation}"
        yield (
            f"{instant(action.created_at)}: {what} by {action.actor} for {action.owner}{many}: "
            f"{mask.text(action.reason)}{ticket}"
        )


def _intended(history: JobHistory) -> Iterator[str]:
    job = history.job
    about = f", about {job.subject}" if job.subject else ""
    yield (
        f"Job {job.pk}: {job.job_type} (payload version {job.payload_version}), queue {job.queue_name}, priority "
        f"{job.priority}{about}."
    )
    yield from _takes_back(history)
    yield f"Payload: {_payload(history)}"
    yield from _key(history)
    yield f"Enqueued at {instant(job.created_at)} {_caller(job)}."
    if job.serial_key:
        yield f"Jobs with the serial key {job.serial_key!r} run one after the other."
    if job.resource:
        yield f"It uses the resource {job.resource}."
    yield from belonging_lines(history.composition)
    if job.useful_until is not None:
        yield f"Its result is useful until {instant(job.useful_until)}."
    yield f"Owner: {job.owner}." if job.owner else "No owner is declared for it."


def _takes_back(history: JobHistory) -> Iterator[str]:
    row, decision = history.takes_back, history.decision
    if row is None:
        return
    yield f"It takes back the effect {row.effect.name} ({row.effect.business_key}) of job {row.original_job_id}."
    if decision is not None:
        reason = redactor().text(decision.reason)
        yield f"{decision.actor} decided that at {instant(decision.created_at)} for {decision.owner}: {reason}"


def _payload(history: JobHistory) -> str:
    if history.content_removed:
        return f"its content was {history.content_removed}."
    if history.payload is None:
        return "its row is missing (run 'manage.py jobs verify')."
    text = canonical(shown_json(history.payload.arguments, redactor()))
    return text if len(text) <= _PAYLOAD_SHOWN else f"{text[:_PAYLOAD_SHOWN]}… ({len(text)} characters)"


def _key(history: JobHistory) -> Iterator[str]:
    payload, key = history.payload, history.key
    name, scope = (payload.key, payload.key_scope) if payload else (key.key, key.scope) if key else ("", "")
    if not name and history.content_removed:
        yield "If it had an idempotency key, that had expired and was removed with the content."
        return
    if not name:
        yield "It has no idempotency key, so nothing was deduplicated."
        return
    yield f"Idempotency key {name} in scope {scope}{_key_life(history)}."
    if payload is not None and payload.previous_job_id is not None:
        yield f"It took the key over from job {payload.previous_job_id}, whose time had run out."
    if history.duplicates:
        last = history.duplicates[-1].created_at
        yield (
            f"Later enqueues with this key were answered with this job: {len(history.duplicates)} on record, the last "
            f"at {instant(last)}."
        )
    elif key is not None:
        yield "No later enqueue with this key is on record."


def _key_life(history: JobHistory) -> str:
    key, finished = history.key, history.job.finished_at
    if key is None:
        return ", which it does not hold any more"
    ttl = timedelta(seconds=key.ttl_seconds)
    if finished is None:
        return f": live until {duration(ttl)} after its end"
    end = finished + ttl
    return f": live until {instant(end)}" if end > history.read_at else f": expired at {instant(end)}"


def _caller(job: Job) -> str:
    if not job.correlation_id:
        return "from outside of any job"
    return f"from inside a job (correlation id {job.correlation_id})"


def _replay(history: JobHistory, plan: ReplayPlan) -> Iterator[str]:
    if history.job.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        yield plan.refused
        return
    yield _verdict(history, plan)
    if plan.refused:
        yield plan.refused
    for effect in plan.effects:
        yield f"Effect {effect.name} ({effect.business_key}) at {effect.provider}: {effect.label}. {effect.why}"
    if not plan.effects:
        yield (
            "No side effect is recorded, so none would be skipped. Calls that the handler makes outside of effects are "
            "unknown here."
        )
    yield plan.rows
    if plan.effects:
        yield "This holds if the handler asks for the same requests again."


def _verdict(history: JobHistory, plan: ReplayPlan) -> str:
    subject = "a replay" if history.job.state == JobState.DEAD_LETTERED else "another attempt"
    worst = plan.worst
    if worst is OnReplay.NEEDS_DECISION:
        return f"NO: {subject} needs your decision first: whether an effect was applied is not known."
    if worst is OnReplay.MAY_REPEAT:
        return f"NOT FOR SURE: with {subject} an effect may happen again, and the handler's author accepts that."
    if not plan.rows_safe:
        return f"FOR EFFECTS YES: {subject} repeats none that is recorded, but rows may be written again."
    if worst is None and any(attempt.outcome == AttemptOutcome.LOST for attempt in history.attempts):
        return f"FOR ROWS YES: {subject} repeats no row; calls outside of effects may have been made by a lost attempt."
    return f"YES: {subject} cannot repeat anything that is recorded."
