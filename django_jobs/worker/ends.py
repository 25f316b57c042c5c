"""Telling telemetry how attempts begin and end: one event each, whoever records the end and however often."""

from __future__ import annotations

from django_jobs import telemetry
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.states import DeadReason, ErrorClass
from django_jobs.store import Abandoned, Loss
from django_jobs.store.leases import told_of
from django_jobs.worker.attempt import RunningAttempt

SUCCEEDED = "succeeded"
RETRY = "retry"
DEAD = "dead_lettered"
SNOOZED = "snoozed"
RELEASED = "released"
CANCELLED = "cancelled"
LOST = "lost"


def facts_of(attempt: RunningAttempt) -> dict[str, object]:
    """Return what log lines say about the attempt that runs."""
    claimed = attempt.claimed
    return {
        **told_of(attempt),
        "generation": claimed.generation,
        "worker": claimed.worker_name,
        "code_version": claimed.code_version,
        "correlation_id": claimed.correlation_id or str(claimed.job_id),
    }


def tell_start(attempt: RunningAttempt) -> None:
    """Tell that a thread has taken the attempt up."""
    telemetry.emit("attempt.started", using=attempt.using, **facts_of(attempt))


def tell_done(attempt: RunningAttempt) -> None:
    """Tell that the thread of the attempt is free again, whatever became of it."""
    if attempt.note_done_once():
        telemetry.emit("attempt.done", **told_of(attempt))


def tell_end(
    attempt: RunningAttempt,
    outcome: str,
    *,
    error: ErrorRecord | None = None,
    error_class: ErrorClass | None = None,
    dead_reason: DeadReason | None = None,
) -> None:
    """Tell how the attempt ended, once it is recorded; only the first call for an attempt tells.

    ``duration_s`` counts from the claim, ``age_s`` from when this generation of the job could first run.
    """
    if not attempt.note_end_once():
        return
    attempt.outcome = outcome
    elapsed = attempt.elapsed
    telemetry.emit(
        "attempt.ended",
        outcome=outcome,
        using=attempt.using,
        duration_s=elapsed.total_seconds(),
        age_s=attempt.age.total_seconds(),
        over_budget=attempt.renewed_at == attempt.asked_at and elapsed > attempt.definition.terms.budget,
        **_error(error, error_class, dead_reason),
        **facts_of(attempt),
    )


def tell_end_of_gone(
    item: Abandoned,
    outcome: str,
    *,
    error: ErrorRecord | None = None,
    error_class: ErrorClass | None = None,
    dead_reason: DeadReason | None = None,
    loss: Loss | None = None,
) -> None:
    """Tell how an attempt ended whose process is gone or was ended: nobody knows how long it ran."""
    telemetry.emit(
        "attempt.ended",
        outcome=outcome,
        using=item.using,
        age_s=item.age.total_seconds(),
        cause=loss.cause.value if loss else "",
        **_error(error, error_class, dead_reason or (loss.dead_reason if loss else None)),
        **told_of(item),
        worker=item.worker_name,
    )


def _error(error: ErrorRecord | None, error_class: ErrorClass | None, reason: DeadReason | None) -> dict[str, object]:
    return {
        "error_class": error_class.value if error_class else "",
        "error_type": error.type if error else "",
        "error_fingerprint": error.fingerprint if error else "",
        "dead_reason": reason.value if reason else "",
    }
