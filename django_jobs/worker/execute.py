"""Running one attempt in its thread, from stored arguments to a recorded end."""

from __future__ import annotations

import contextvars
import logging
from functools import partial
from typing import Any, NamedTuple

from django.db import connections
from django.utils import timezone, translation

from django_jobs import faults, telemetry
from django_jobs.domain.canonical import stored_object
from django_jobs.domain.errors import describe
from django_jobs.domain.identity import fingerprint
from django_jobs.domain.lines import indented, one_line
from django_jobs.enqueue.inside import InsideJob, current
from django_jobs.exceptions import JobsError, LeaseLostError, PayloadError
from django_jobs.masking import described
from django_jobs.outbox.emit import store_held_back
from django_jobs.store import note_refusal, succeed
from django_jobs.store.completion import read_back
from django_jobs.worker import hygiene
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.awaited import awaited
from django_jobs.worker.commit import check_transaction, one_transaction
from django_jobs.worker.connection import clean, commit_for_certain, freshen, limited_idling
from django_jobs.worker.context import JobContext, encode_result
from django_jobs.worker.ends import SUCCEEDED, facts_of, tell_done, tell_end, tell_start
from django_jobs.worker.finish import record_error, record_failure, record_success
from django_jobs.worker.following import close_if_last, enqueue_following, pass_turn_on
from django_jobs.worker.forks import without_forks
from django_jobs.worker.hooked import hooked
from django_jobs.worker.patience import patiently
from django_jobs.worker.soft_timeout import told_in_time

logger = logging.getLogger("django_jobs.worker")


def execute(attempt: RunningAttempt) -> None:
    """Run the attempt and record its end; never raises, so that no handler can end its thread."""
    freshen(attempt.using)
    hygiene.watch_all(attempt.using)
    commit_for_certain(attempt.using)
    attempt.connection = connections[attempt.using]
    tell_start(attempt)
    try:
        contextvars.Context().run(_execute, attempt)
    except LeaseLostError as error:
        _note_lost(attempt, error)
    except BaseException as error:  # noqa: BLE001  no handler may end its thread
        text = "The end of attempt %s of job %s could not be recorded\n%s"
        logger.error(text, attempt.number, attempt.job_id, indented(described(error).traceback))
        _record_anyway(attempt, error)
    finally:
        if attempt.completed:  # also when the reply to its COMMIT was lost
            tell_end(attempt, SUCCEEDED)
        attempt.close()
        tell_done(attempt)
        translation.deactivate()
        timezone.deactivate()
        clean(attempt.using)
        if attempt.claimed.batch_id is not None:
            close_if_last(attempt)
            clean(attempt.using)
        if attempt.claimed.serial_key:
            pass_turn_on(attempt)
            clean(attempt.using)


def abandon(attempt: RunningAttempt) -> None:
    """Record the end of an attempt whose thread ended under it; never raises."""
    attempt.revoke("its thread ended")
    try:
        if not attempt.completed:
            error = JobsError("The thread that ran this attempt was ended from outside.")
            record_failure(attempt, error)
    except LeaseLostError as lost:
        _note_lost(attempt, lost)
    except BaseException:
        logger.exception("Attempt %s of job %s is left to its lease", attempt.number, attempt.job_id)
    finally:
        attempt.close()
        tell_done(attempt)
        clean(attempt.using)


def _record_anyway(attempt: RunningAttempt, error: BaseException) -> None:
    """Whatever went wrong while the end was recorded: the job must not stay running under a worker that lives."""
    if attempt.completed or attempt.revoked:
        return
    try:
        clean(attempt.using)
        kind = describe(error).type
        record_failure(attempt, JobsError(f"The end of this attempt could not be recorded: {kind}."))
    except LeaseLostError as lost:
        _note_lost(attempt, lost)
    except BaseException:
        logger.exception("Attempt %s of job %s is left to its lease", attempt.number, attempt.job_id)


def _note_lost(attempt: RunningAttempt, error: LeaseLostError) -> None:
    logger.warning("%s", one_line(error), extra={"event": "lease.refused", "job_id": str(attempt.job_id)})
    if not attempt.note_refusal_once():
        return
    try:
        clean(attempt.using)
        # An error of our own between the recorded end and here asks for a second end: that was not too late.
        if attempt.revoked or patiently(attempt, lambda: read_back(attempt)).outcome in (None, "lost"):
            patiently(attempt, lambda: note_refusal(attempt, error.operation or "finish"))
    except Exception:
        logger.exception("The refusal of attempt %s of job %s could not be noted", attempt.number, attempt.job_id)


def _execute(attempt: RunningAttempt) -> None:
    claimed = attempt.claimed
    telemetry.attempt_facts.set(facts_of(attempt))
    inside = InsideJob(
        job_id=claimed.job_id,
        correlation_id=claimed.correlation_id or str(claimed.job_id),
        traceparent=claimed.traceparent,
        commits_with_success=attempt.definition.atomic,
        is_stock_task=attempt.definition.is_stock_task,
        database=attempt.using,
        attempt_id=claimed.attempt_id,
        number=claimed.number,
        held_back=[] if attempt.definition.atomic else None,
    )
    try:
        arguments = load_arguments(attempt)
    except BaseException as error:  # noqa: BLE001  whatever a payload does ends an attempt, never a thread
        record_failure(attempt, error)
        return
    current.set(inside)
    try:
        result = _run(attempt, arguments, inside)
    except LeaseLostError as error:
        if attempt.completed:
            _after_error(attempt, error)
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
        # The stored form of the error: a traceback as Python prints it would show secrets in its message.
        text = "Code after the completion failed in job %s, which succeeded\n%s"
        logger.error(text, attempt.job_id, indented(described(error).traceback))
        telemetry.emit("job.after_completion_error", job_id=attempt.job_id)
        return
    if attempt.revoked:
        return  # its end was recorded by whoever revoked it
    clean(attempt.using)
    record_error(attempt, error)


def _run(attempt: RunningAttempt, arguments: dict[str, Any], inside: InsideJob) -> Any:
    definition = attempt.definition
    if definition.atomic:
        return _run_atomic(attempt, arguments, inside)
    if definition.takes_context:
        return _call(attempt, arguments, JobContext(attempt, inside))
    return _call(attempt, arguments)


def _call(attempt: RunningAttempt, arguments: dict[str, Any], *context: JobContext) -> Any:
    faults.reached("handler.before", using=attempt.using)
    with without_forks(attempt), hooked(attempt), without_forks(attempt), told_in_time(attempt) as run:
        result = awaited(attempt, run(partial(attempt.definition.func, *context, **arguments)))
    faults.reached("handler.after", using=attempt.using)
    return result


class _Encoded(NamedTuple):
    """A result in the form in which it is stored; a handler's own object is read once."""

    text: str | None


class _Untouched(Exception):  # noqa: N818  no error: leaves the block of a handler that has written nothing
    """The handler has sent no statement, so there is nothing to commit together with its success."""


def _run_atomic(attempt: RunningAttempt, arguments: dict[str, Any], inside: InsideJob) -> Any:
    """Run a plain handler in one transaction with its success, which is its last statement.

    Where the transaction would hold the success alone it is left, and the caller records the success by one statement.
    """
    encoded = None
    try:
        with (
            one_transaction(attempt, operation="an atomic handler"),
            limited_idling(attempt.using, attempt.lease_remaining),
        ):
            result = _call(attempt, arguments)
            encoded = encode_result(result, attempt.claimed.job_type)
            store_held_back(inside)
            inside.commits_with_success = False  # what runs on commit is outside of it
            attempt.check_open()
            check_transaction(attempt)
            if hygiene.is_untouched(connections[attempt.using]):
                raise _Untouched
            succeed(attempt, result=encoded, budget=attempt.definition.terms.budget)
            enqueue_following(attempt, encoded)
    except _Untouched:  # not suppress(): from Python 3.12 on it makes another group of a handler's exception group
        pass
    return _Encoded(encoded)


def _finish_plain(attempt: RunningAttempt, result: Any) -> None:
    if attempt.revoked:
        raise LeaseLostError(attempt.lost_message)
    left = clean(attempt.using)
    if left:
        msg = (
            f"The handler returned with a transaction open on {', '.join(left)}; what it wrote there was rolled back. "
            "End every transaction in the handler."
        )
        record_failure(attempt, JobsError(msg))
        return
    try:
        is_encoded = isinstance(result, _Encoded)
        record_success(attempt, result.text if is_encoded else encode_result(result, attempt.claimed.job_type))
    except LeaseLostError:
        raise
    except BaseException as error:  # noqa: BLE001  a result that cannot be stored, an effect that stands against success
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
    stored = stored_object(text, what="payload", of="the arguments' names")
    return attempt.definition.restore(stored, since=attempt.claimed.payload_version)
