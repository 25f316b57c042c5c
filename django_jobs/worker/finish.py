"""How an attempt's end is recorded: which transition an error asks for, and certainty that it was written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from django_jobs import faults
from django_jobs.domain.errors import ErrorRecord, classify, wish
from django_jobs.domain.poison import cleared
from django_jobs.domain.retry import (
    DeadLetter,
    after_failure,
    after_free_move,
    after_wait,
    count_failure,
    count_free,
)
from django_jobs.domain.states import DeadReason, ErrorClass, JobState
from django_jobs.exceptions import (
    DefinitionError,
    EffectsOpenError,
    EffectUncertain,
    HardTimeoutError,
    JobCancelled,
    JobsError,
    LeaseLostError,
    Snooze,
)
from django_jobs.masking import described
from django_jobs.store import Failure, cancel_running, dead_letter, fail, release, snooze, succeed
from django_jobs.store.adoptions import recheck_adopted
from django_jobs.store.brief import briefly
from django_jobs.store.completion import read_back
from django_jobs.store.resources import hold_resource
from django_jobs.worker.alerts import FIRST_UNKNOWN, Alert, tell, tell_of_dead_letter
from django_jobs.worker.alerts import dead_letter as dead_letter_alert
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.connection import LOST, drop
from django_jobs.worker.ends import CANCELLED, DEAD, RELEASED, RETRY, SNOOZED, SUCCEEDED, tell_end
from django_jobs.worker.failures import failures
from django_jobs.worker.following import enqueue_following
from django_jobs.worker.outage import outage
from django_jobs.worker.patience import patiently, pauses, stopping

logger = logging.getLogger("django_jobs.worker")

T = TypeVar("T")
Settle = Callable[[RunningAttempt, Callable[[], object]], object]


def settled(attempt: RunningAttempt, action: Callable[[], object]) -> None:
    """Run a one-statement ending until it is known to be written: by us now, or by us before a reply was lost.

    Raises:
        LeaseLostError: The job belongs to somebody else.
    """
    following = pauses()
    while True:
        try:
            action()
        except LOST as error:
            drop(attempt.using)
            outage.failed(error)
        else:
            outage.answered()
            return
        truth = patiently(attempt, lambda: read_back(attempt))
        if truth.outcome is not None and truth.outcome != "lost":
            return
        if not truth.owns:
            msg = f"Attempt {attempt.number} of job {attempt.job_id} no longer owns the job."
            raise LeaseLostError(msg, operation="finish")
        if stopping.wait(following()):
            return


def record_success(attempt: RunningAttempt, result: str | None) -> None:
    """Record the success of a handler that committed its rows itself.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
        EffectsOpenError: An effect stands against success.
        EffectKeyReusedError: An adopted effect is being, or has been, taken back.
    """
    budget = attempt.definition.terms.budget
    if not attempt.definition.takes_context and attempt.claimed.chain_id is None:
        settled(attempt, lambda: succeed(attempt, result=result, budget=budget))
        tell_end(attempt, SUCCEEDED)
        return

    def action() -> None:
        with briefly(attempt.using):
            recheck_adopted(attempt)
            succeed(attempt, result=result, budget=budget)
            enqueue_following(attempt, result)

    settled(attempt, action)
    faults.reached("finish.after_commit", using=attempt.using)
    tell_end(attempt, SUCCEEDED)


def ran_past(lease: timedelta) -> HardTimeoutError:
    """Return the error of a handler that was ended because its lease was about to end."""
    return HardTimeoutError(f"The handler ran past its lease of {lease} without telling progress, and was ended.")


def record_error(attempt: RunningAttempt, error: BaseException) -> None:
    """Record what an exception asks for: a retry, a snooze, a cancel or a dead letter."""
    wished = wish(error)
    if isinstance(wished, EffectUncertain):
        _wait_for_evidence(attempt, wished)
    elif isinstance(wished, JobCancelled):
        _cancel(attempt, wished)
    elif isinstance(wished, Snooze) and isinstance(wished.delay, timedelta):
        _snooze(attempt, wished)
    elif isinstance(wished, Snooze):
        record_failure(attempt, DefinitionError(f"Snooze takes a timedelta, not a {type(wished.delay).__name__}."))
    else:
        record_failure(attempt, error)


def _leaving(attempt: RunningAttempt, ending: Callable[[], T]) -> T:
    """Run an ending that leaves the job waiting; a known request to cancel it is heeded before anybody can claim it."""
    if not attempt.cancel_requested:
        return ending()
    with briefly(attempt.using):
        return ending()


def _cancel(attempt: RunningAttempt, error: JobCancelled) -> None:
    """End attempt and job as cancelled: because that was asked for and heard, or because the handler decides it."""
    record = described(error)
    message = record.message or "The handler ended the job as cancelled."
    ended: list[JobState] = []
    budget = attempt.definition.terms.budget
    settled(attempt, lambda: ended.append(cancel_running(attempt, message=message, budget=budget)))
    if JobState.DEAD_LETTERED in ended:
        tell_end(attempt, DEAD, dead_reason=DeadReason.CANCELLED)
        _tell_of_death(attempt, DeadReason.CANCELLED, record)
    else:
        tell_end(attempt, CANCELLED)


def _wait_for_evidence(attempt: RunningAttempt, error: EffectUncertain) -> None:
    now = attempt.database_time
    since = attempt.claimed.waiting_since or now
    policy = attempt.definition.retry
    at = error.retry_at
    delay = max(timedelta(0), at - now) if isinstance(at, datetime) and at.tzinfo is not None else policy.base
    if isinstance(after_wait(policy, waited=now - since, delay=delay), DeadLetter):
        _dead_letter(attempt, error, ErrorClass.UNKNOWN, DeadReason.EFFECT_OPEN)
        return
    counters = cleared(attempt.claimed.counters)
    message = described(error).message
    settled(
        attempt,
        lambda: _leaving(
            attempt, lambda: snooze(attempt, delay=delay, counters=counters, message=message, for_evidence=True)
        ),
    )
    tell_end(attempt, SNOOZED)


def _snooze(attempt: RunningAttempt, error: Snooze) -> None:
    counters = count_free(cleared(attempt.claimed.counters))
    following = after_free_move(
        attempt.definition.retry,
        counters=counters,
        age=attempt.age,
        delay=error.delay,
        useful_left=attempt.useful_left,
    )
    if isinstance(following, DeadLetter):
        _dead_letter(attempt, error, ErrorClass.UNKNOWN, following.reason)
        return
    message = described(error).message
    settled(
        attempt,
        lambda: _leaving(attempt, lambda: snooze(attempt, delay=error.delay, counters=counters, message=message)),
    )
    tell_end(attempt, SNOOZED)


def record_failure(attempt: RunningAttempt, error: BaseException, *, settle: Settle = settled) -> None:
    """Class the error, charge its budget, and schedule the next attempt or leave the job to a human.

    Raises:
        LeaseLostError: The attempt no longer owns the job.
    """
    policy = attempt.definition.retry
    verdict = classify(error, policy)
    record = described(error)
    counters = count_failure(
        attempt.claimed.counters, verdict.error_class, same=record.fingerprint == attempt.claimed.error_fingerprint
    )
    following = after_failure(
        policy,
        error_class=verdict.error_class,
        counters=counters,
        age=attempt.age,
        retry_after=verdict.retry_after,
        useful_left=attempt.useful_left,
        extra_attempts=attempt.claimed.extra_attempts,
        dead_reason=verdict.dead_reason,
    )
    failure = Failure(error=record, error_class=verdict.error_class, counters=counters)
    budget = attempt.definition.terms.budget
    if isinstance(following, DeadLetter):
        reason = following.reason
        if issubclass(type(error), EffectsOpenError) and reason is not DeadReason.EXPIRED:
            reason = DeadReason.EFFECT_OPEN
        settle(attempt, lambda: dead_letter(attempt, failure=failure, reason=reason, budget=budget))
        tell_end(attempt, DEAD, error=record, error_class=verdict.error_class, dead_reason=reason)
        _tell_of_death(attempt, reason, record)
        _hold_resource(attempt, verdict.retry_after)
        return
    settle(
        attempt,
        lambda: _leaving(attempt, lambda: fail(attempt, failure=failure, delay=following.delay, budget=budget)),
    )
    tell_end(attempt, RETRY, error=record, error_class=verdict.error_class)
    _hold_resource(attempt, verdict.retry_after)
    if verdict.error_class is ErrorClass.UNKNOWN and counters.unchanged == 1:
        tell(_alert(attempt, FIRST_UNKNOWN, record), using=attempt.using)


def _hold_resource(attempt: RunningAttempt, wish: timedelta | None) -> None:
    """Hold back all jobs that use the resource: the downstream asked for it. The attempt has ended either way."""
    name = attempt.claimed.resource
    if not name or wish is None:
        return
    try:
        until = hold_resource(name, wish, job_id=attempt.job_id, using=attempt.using)
    except Exception as error:  # noqa: BLE001  the attempt has ended; the next one is told the same by the downstream
        failures.note("resources", error, using=attempt.using)
        return
    if until is not None:
        logger.warning("Resource %s starts nothing until %s: job %s was asked to wait", name, until, attempt.job_id)


def give_back(attempt: RunningAttempt, *, message: str) -> bool:
    """Release an attempt that its worker cannot finish; one that was given back without end is left to a human.

    Returns:
        False when nothing changed, see :func:`django_jobs.store.release`.

    Raises:
        LeaseLostError: The job was to be left to a human, and the attempt no longer owns it.
    """
    counters = count_free(attempt.claimed.counters)
    following = after_free_move(attempt.definition.retry, counters=counters, age=attempt.age, delay=timedelta(0))
    if not isinstance(following, DeadLetter):
        released = _leaving(attempt, lambda: release(attempt, message=message))
        if released:
            tell_end(attempt, RELEASED)
        return released
    error = JobsError(f"{message} It was given back {counters.free - 1} times before.")
    record = described(error)
    failure = Failure(error=record, error_class=ErrorClass.UNKNOWN, counters=attempt.claimed.counters)
    dead_letter(attempt, failure=failure, reason=following.reason, budget=attempt.definition.terms.budget)
    tell_end(attempt, DEAD, error=record, error_class=ErrorClass.UNKNOWN, dead_reason=following.reason)
    _tell_of_death(attempt, following.reason, record)
    return True


def _dead_letter(attempt: RunningAttempt, error: BaseException, error_class: ErrorClass, reason: DeadReason) -> None:
    record = described(error)
    failure = Failure(error=record, error_class=error_class, counters=replace(attempt.claimed.counters))
    budget = attempt.definition.terms.budget
    settled(attempt, lambda: dead_letter(attempt, failure=failure, reason=reason, budget=budget))
    tell_end(attempt, DEAD, error=record, error_class=error_class, dead_reason=reason)
    _tell_of_death(attempt, reason, record)


def _tell_of_death(attempt: RunningAttempt, reason: DeadReason, record: ErrorRecord) -> None:
    alert = _alert(attempt, dead_letter_alert(reason, job_type=attempt.claimed.job_type), record)
    tell_of_dead_letter(alert, reason, using=attempt.using, once=attempt.note_death_once)


def _alert(attempt: RunningAttempt, reason: str, record: ErrorRecord) -> Alert:
    claimed = attempt.claimed
    message = f"{record.type}: {record.message}"
    return Alert(job_id=attempt.job_id, job_type=claimed.job_type, owner=claimed.owner, reason=reason, message=message)
