"""What happened to each side effect: requests, answers, questions, and who took over a receipt."""

from __future__ import annotations

from collections.abc import Iterator

from django_jobs.domain.redaction import Redactor
from django_jobs.domain.states import CompensationOutcome, EffectState, SendOutcome
from django_jobs.masking import redactor
from django_jobs.models import Compensation, Reconciliation, Send, SideEffect
from django_jobs.operate.history import EffectHistory, JobHistory
from django_jobs.operate.wording import instant

_NOT_COMPARED = (
    "Whether it asked for the same could not be compared: the content of what was applied had been removed by then."
)
_STATES: dict[str, str] = {
    EffectState.PLANNED: "planned; nothing was sent",
    EffectState.IN_FLIGHT: "sent; no answer is recorded, so it may have been applied",
    EffectState.AMBIGUOUS: "sent; whether it was applied is not known",
    EffectState.REJECTED: "known not to have been applied",
    EffectState.SUCCEEDED: "applied",
    EffectState.ABANDONED: "given up: whether it was applied is not known and was accepted as unknown",
}
_OUTCOMES: dict[str, str] = {
    SendOutcome.CONFIRMED: "confirmed",
    SendOutcome.REJECTED: "rejected",
    SendOutcome.NOT_APPLIED: "found not to have been applied",
    SendOutcome.UNKNOWN: "outcome unknown",
}


def effect_lines(history: JobHistory) -> Iterator[str]:
    """Yield a line per effect and, indented, one per request, question and adoption."""
    if not history.effects and not history.adopted:
        yield "No side effect is recorded."
        return
    mask = redactor()
    for item in history.effects:
        yield f"Effect {named(item.effect)}: {state_of(item.effect)}{_ended(item.effect)}."
        yield from _details(item, history, mask)
    for item in history.adopted:
        yield (
            f"Effect {named(item.effect)}: {state_of(item.effect)} by job {item.effect.job_id}; this job took its "
            f"receipt{_reference(item.effect)} and sent nothing."
        )
        if not all(item.is_compared(adoption) for adoption in item.adoptions if adoption.job_id == history.job.pk):
            yield f"  {_NOT_COMPARED}"
        yield from (f"  {_taken_back(row)}" for row in item.compensations)


def named(effect: SideEffect) -> str:
    """Return an effect's name, business key and provider."""
    return f"{effect.name} ({effect.business_key}) at {effect.provider}"


def state_of(effect: SideEffect) -> str:
    """Say in plain English whether an effect was applied."""
    return _STATES.get(effect.state, effect.state)


def _ended(effect: SideEffect) -> str:
    if effect.resolved_at is None:
        return ""
    how = {
        "send": "by the provider's answer",
        "reconciliation": "by asking the provider",
        "policy": "by policy",
        "operator": "by an operator",
    }
    by = how.get(effect.resolved_by, f"by {effect.resolved_by}")
    return f", known since {instant(effect.resolved_at)} {by}{_reference(effect)}"


def _reference(effect: SideEffect) -> str:
    parts = []
    if effect.provider_ref:
        parts.append(f"provider reference {effect.provider_ref}")
    if effect.provider_request_id:
        parts.append(f"provider request id {effect.provider_request_id}")
    return f" ({', '.join(parts)})" if parts else ""


def _details(item: EffectHistory, history: JobHistory, mask: Redactor) -> Iterator[str]:
    for send in item.sends:
        yield f"  Send {send.number} {_by(send, history)} at {instant(send.started_at)}: {answer(send, mask)}."
    for question in item.reconciliations:
        yield f"  Asked {asker(question, history)} at {instant(question.created_at)}: {found(question)}."
    for adoption in item.adoptions:
        doubt = "" if item.is_compared(adoption) else f" {_NOT_COMPARED}"
        yield f"  Job {adoption.job_id} took its receipt at {instant(adoption.created_at)}.{doubt}"
    for row in item.compensations:
        yield f"  {_taken_back(row)}"
    if item.is_taken_back_anyway:
        yield "  It was taken back all the same. Ask for its compensation once more: that sends nothing and records it."
    if item.effect.needs_review:
        yield f"  Waits for a human: {mask.text(item.effect.review_reason)}"
    elif item.effect.state == EffectState.ABANDONED:
        yield f"  Given up because: {mask.text(item.effect.review_reason)}"


def _taken_back(row: Compensation) -> str:
    if row.outcome == CompensationOutcome.OPEN:
        return f"Is being taken back by job {row.job_id} since {instant(row.created_at)}."
    if row.outcome == CompensationOutcome.SUCCEEDED:
        return f"Was taken back by job {row.job_id}, done at {instant(row.closed_at)}."
    return f"Job {row.job_id} was to take it back and was given up at {instant(row.closed_at)}."


def _by(send: Send, history: JobHistory) -> str:
    if send.job_id == history.job.pk:
        return f"by attempt {send.fence}"
    return f"by attempt {send.fence} of job {send.job_id}"


def answer(send: Send, mask: Redactor) -> str:
    """Say what came back on a request."""
    text = "no answer is recorded" if send.outcome is None else _OUTCOMES.get(send.outcome, send.outcome)
    if send.status is not None:
        text += f" (status {send.status})"
    if send.replayed:
        text += ", from the provider's memory of an earlier request with the same key"
    if send.reason:
        text += f": {mask.text(send.reason).rstrip('.')}"
    return text + (f"; provider request id {send.provider_request_id}" if send.provider_request_id else "")


def asker(question: Reconciliation, history: JobHistory) -> str:
    """Say who asked."""
    if question.actor:
        return f"by {question.actor}"
    number = history.attempt_number(question.attempt_id)
    return f"by attempt {number}" if number is not None else "by another job"


def found(question: Reconciliation) -> str:
    """Say what a question to a provider found."""
    final = "final" if question.is_final else "not final"
    reference = f", provider reference {question.provider_ref}" if question.provider_ref else ""
    return f"{question.verdict.replace('_', ' ')} ({final}){reference}"
