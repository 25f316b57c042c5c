"""Running one attempt in its thread, from stored arguments to a recorded end."""

from __future__ import annotations

import contextvars
import json
import logging
from typing import Any

from django.db import transaction
from django.utils import timezone, translation

from django_jobs import telemetry
from django_jobs.domain.identity import fingerprint
from django_jobs.enqueue.inside import InsideJob, current
from django_jobs.exceptions import CommitLostError, LeaseLostError, PayloadError
from django_jobs.store import note_refusal, succeed
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.connection import LOST, clean, drop, limited_idling
from django_jobs.worker.context import JobContext, encode_result, settle_commit
from django_jobs.worker.finish import record_error, record_failure, record_success

logger = logging.getLogger("django_jobs.worker")


def execute(attempt: RunningAttempt) -> None:
    """Run the attempt and record its end; never raises, so that no handler can end its thread."""
    try:
        contextvars.copy_context().run(_execute, attempt)
    except LeaseLostError as error:
        _note_lost(attempt, error)
    except BaseException:
        logger.exception("The end of attempt %s of job %s could not be recorded", attempt.number, attempt.job_id)
    finally:
        attempt.close()
        translation.deactivate()
        timezone.deactivate()
        clean(attempt.using)


def _note_lost(attempt: RunningAttempt, error: LeaseLostError) -> None:
    logger.warning("%s", error, extra={"event": "lease.refused", "job_id": str(attempt.job_id)})
    try:
        clean(attempt.using)
        note_refusal(attempt, error.operation or "finish")
    except Exception:
        logger.exception("The refusal of attempt %s of job %s could not be noted", attempt.number, attempt.job_id)


def _execute(attempt: RunningAttempt) -> None:
    claimed = attempt.claimed
    inside = InsideJob(
        job_id=claimed.job_id,
        correlation_id=claimed.correlation_id or str(claimed.job_id),
        traceparent=claimed.traceparent,
        commits_with_success=attempt.definition.atomic,
    )
    try:
        arguments = load_arguments(attempt)
    except PayloadError as error:
        record_failure(attempt, error)
        return
    current.set(inside)
    try:
        result = _run(attempt, arguments, inside)
    except LeaseLostError as error:
        if attempt.completed:
            logger.exception("Code after complete() failed in job %s", attempt.job_id)
            return
        raise error from None
    except BaseException as error:  # noqa: BLE001  whatever a handler raises ends an attempt, never a thread
        _after_error(attempt, error)
        return
    finally:
        current.set(None)
    if not attempt.completed:
        _finish_plain(attempt, result)


def _after_error(attempt: RunningAttempt, error: BaseException) -> None:
    if attempt.completed:
        logger.error("Code after complete() failed in job %s", attempt.job_id, exc_info=error)
        telemetry.emit("job.after_completion_error", job_id=attempt.job_id)
        return
    if attempt.revoked:
        return  # its end was recorded by whoever revoked it
    clean(attempt.using)
    record_error(attempt, error)


def _run(attempt: RunningAttempt, arguments: dict[str, Any], inside: InsideJob) -> Any:
    definition = attempt.definition
    if definition.atomic:
        _run_atomic(attempt, arguments)
        return None
    if definition.takes_context:
        return definition.func(JobContext(attempt, inside), **arguments)
    return definition.func(**arguments)


def _run_atomic(attempt: RunningAttempt, arguments: dict[str, Any]) -> None:
    """Run a plain handler in one transaction with its success, which is its last statement."""
    definition = attempt.definition
    committing = False
    try:
        with transaction.atomic(using=attempt.using), limited_idling(attempt.using, attempt.lease_remaining):
            result = encode_result(definition.func(**arguments), attempt.claimed.job_type)
            attempt.check_open()
            succeed(attempt, result=result, budget=definition.terms.budget)
            committing = True
    except LOST as error:
        if not committing:
            raise
        drop(attempt.using)
        if not settle_commit(attempt):
            msg = "The reply to the COMMIT of an atomic handler was lost, and the database shows that it did not happen."
            raise CommitLostError(msg) from error
    attempt.completed = True


def _finish_plain(attempt: RunningAttempt, result: Any) -> None:
    if attempt.revoked:
        raise LeaseLostError(f"Attempt {attempt.number} of job {attempt.job_id} was taken back: {attempt.revoked}.")
    try:
        encoded = encode_result(result, attempt.claimed.job_type)
        record_success(attempt, encoded)
    except LeaseLostError:
        raise
    except Exception as error:  # noqa: BLE001  a result that cannot be stored, or an effect that stands against success
        record_error(attempt, error)


def load_arguments(attempt: RunningAttempt) -> dict[str, Any]:
    """Read the stored arguments and check that they are what was enqueued and fit the handler.

    Raises:
        PayloadError: They do not; the message names the field.
    """
    text = attempt.claimed.arguments
    if text is None:
        msg = "The payload row of this job is missing."
        raise PayloadError(msg)
    if fingerprint(text) != attempt.claimed.payload_fingerprint:
        msg = "The stored payload is not the one that was enqueued: its fingerprint differs."
        raise PayloadError(msg)
    try:
        stored = json.loads(text)
    except ValueError as error:
        msg = f"The stored payload is not JSON: {error}."
        raise PayloadError(msg) from error
    if not isinstance(stored, dict):
        msg = f"The stored payload is a {type(stored).__name__}, not an object with the arguments' names."
        raise PayloadError(msg)
    return attempt.definition.restore(stored)
