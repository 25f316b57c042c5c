"""How an attempt ends: one function per transition out of ``running`` that its holder may ask for.

What leaves the job waiting looks afterwards whether somebody wants it cancelled, see :mod:`django_jobs.store.cancels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_jobs import telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.poison import isolation
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import DeadReason, EffectState, ErrorClass
from django_jobs.exceptions import EffectsOpenError
from django_jobs.models import Job, SideEffect
from django_jobs.store.cancels import heed_request
from django_jobs.store.leases import Held, refused, told_of
from django_jobs.store.stakes import standing_against
from django_jobs.store.statements import Row, run

_OPEN = (EffectState.PLANNED, EffectState.IN_FLIGHT, EffectState.AMBIGUOUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error, its class, and the job's counters after counting it."""

    error: ErrorRecord
    error_class: ErrorClass
    counters: Counters


def counter_params(counters: Counters) -> dict[str, Any]:
    """Spell the counters, and the isolation that follows from them, as statement parameters."""
    return {
        "unknown_count": counters.unknown,
        "transient_count": counters.transient,
        "free_count": counters.free,
        "lost_count": counters.lost,
        "exit_lost_count": counters.exit_lost,
        "silent_lost_count": counters.silent_lost,
        "unchanged_count": counters.unchanged,
        "isolation": isolation(exit_lost=counters.exit_lost, silent_lost=counters.silent_lost).value,
    }


def _guard(held: Held) -> dict[str, Any]:
    return {"job_id": held.job_id, "attempt_id": held.attempt_id}


def _failure_params(failure: Failure) -> dict[str, Any]:
    return {
        **counter_params(failure.counters),
        "error_class": failure.error_class.value,
        "error_type": failure.error.type[:200],
        "error_fingerprint": failure.error.fingerprint,
        "message": failure.error.message,
        "traceback": failure.error.traceback,
    }


def _end(name: str, held: Held, params: dict[str, Any]) -> Row:
    rows = run(name, {**_guard(held), **params}, using=held.using)
    if not rows:
        refused(held, name)
    telemetry.emit(f"job.{name}", **told_of(held))
    return rows[0]


def succeed(held: Held, *, result: str | None, budget: timedelta) -> datetime:
    """Record the success; inside the handler's transaction it commits together with the handler's rows.

    Args:
        held: The attempt.
        result: Canonical JSON, or None for no result.
        budget: To mark an attempt that ran longer.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
        EffectsOpenError: An effect of the job is open, ambiguous, or required and rejected; or another job owns it,
            and this one, which asked for it or had sent it, has not got its receipt.
    """
    params = {**_guard(held), "result": result, "budget": budget}
    rows = run("succeed", params, using=held.using)
    if not rows and _owns(held):
        _raise_if_effects_open(held)
        rows = run("succeed", params, using=held.using)  # the evidence that it waited for may just have come in
    if not rows:
        refused(held, "succeed")
    telemetry.emit("job.succeed", **told_of(held))
    finished: datetime = rows[0]["finished_at"]
    return finished


def _owns(held: Held) -> bool:
    return Job.objects.using(held.using).filter(pk=held.job_id, state="running", attempt_id=held.attempt_id).exists()


def _raise_if_effects_open(held: Held) -> None:
    effects = SideEffect.objects.using(held.using).filter(job_id=held.job_id)
    blocking = [
        f"{effect.name} ({effect.state})"
        for effect in effects.order_by("created_at", "id")
        if effect.state in _OPEN or (effect.state == EffectState.REJECTED and effect.required)
    ]
    blocking += [f"{effect.name} ({effect.state} under job {effect.job_id})" for effect in standing_against(held)]
    if blocking:
        msg = (
            f"Job {held.job_id} cannot succeed: the outcome of {', '.join(blocking)} stands against it. Ask for each "
            "effect in the handler, or declare required=False where a refusal is acceptable."
        )
        raise EffectsOpenError(msg)


def fail(held: Held, *, failure: Failure, delay: timedelta, budget: timedelta) -> datetime:
    """Record a failed attempt; the next one may start after ``delay``.

    Returns:
        When the job is due again.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
    """
    row = _end("fail", held, {**_failure_params(failure), "delay": delay, "budget": budget})
    heed_request(held.job_id, using=held.using)
    due: datetime = row["available_at"]
    return due


def dead_letter(held: Held, *, failure: Failure, reason: DeadReason, budget: timedelta) -> None:
    """Record a failed attempt and leave the job to a human.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
    """
    _end("dead_letter", held, {**_failure_params(failure), "dead_reason": reason.value, "budget": budget})
    telemetry.emit("job.dead", reason=reason.value, **told_of(held))


def snooze(held: Held, *, delay: timedelta, counters: Counters, message: str, for_evidence: bool = False) -> datetime:
    """End the attempt without an error and run the job again after ``delay``.

    ``for_evidence`` marks a wait for a provider's answer, which is charged to no budget.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
    """
    row = _end(
        "snooze",
        held,
        {**counter_params(counters), "delay": delay, "message": message, "for_evidence": for_evidence},
    )
    heed_request(held.job_id, using=held.using)
    due: datetime = row["available_at"]
    return due


def release(held: Held, *, message: str) -> bool:
    """Give the job back at once; only the count of free moves rises.

    Returns:
        False when nothing changed: the attempt no longer owns the job, or a request of it is inside its deadline.
    """
    params = {**_guard(held), "message": message, "notify": get_settings().notify}
    rows = run("release", params, using=held.using)
    if rows:
        telemetry.emit("job.release", **told_of(held))
        heed_request(held.job_id, using=held.using)
    return bool(rows)
