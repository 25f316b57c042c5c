"""One transaction of a handler, from its begin to the certainty that its COMMIT happened or did not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import connections, transaction

from django_jobs import clock, faults, telemetry
from django_jobs.exceptions import CommitLostError, JobsError, LeaseLostError
from django_jobs.store.completion import finished_step, read_back
from django_jobs.worker import hygiene
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.connection import LOST, busy_timeout, drop, was_refused
from django_jobs.worker.ends import SUCCEEDED, tell_end
from django_jobs.worker.patience import patiently

logger = logging.getLogger("django_jobs.worker")


@contextmanager
def one_transaction(attempt: RunningAttempt, *, operation: str, step: str | None = None) -> Iterator[None]:
    """Run the block in the outermost transaction on the job's database and settle a COMMIT whose reply was lost.

    Unless it is a ``step``, the block records the success of the attempt as its last statement.

    Raises:
        CommitLostError: The reply to COMMIT was lost, and it did not happen.
        LeaseLostError: It did not happen, and the job belongs to somebody else by now.
    """
    committing = False
    began = clock.boot_seconds()
    try:
        with _begun(attempt):
            began = clock.boot_seconds()
            yield
            committing = True
    except BaseException as error:
        if not committing:
            raise
        _settle(attempt, error, operation=operation, step=step)
    finally:
        _note_long(attempt, operation, clock.boot_seconds() - began)
    if step is None:
        attempt.completed = True
        faults.reached("finish.after_commit", using=attempt.using)
        tell_end(attempt, SUCCEEDED)


@contextmanager
def _begun(attempt: RunningAttempt) -> Iterator[None]:
    """Open the transaction; a database that is busy or away is waited for as long as the budget allows."""
    connection = connections[attempt.using]
    depth = len(connection.atomic_blocks)
    with ExitStack() as stack:
        block = transaction.atomic(using=attempt.using)
        patiently(attempt, block.__enter__, worth_it=lambda: bool(attempt.remaining) and not attempt.revoked)
        stack.push(block)
        hygiene.begin_transaction(connection, block)
        try:
            yield
        finally:
            hygiene.end_transaction(connection)
    if len(connection.atomic_blocks) > depth:
        drop(attempt.using)
        msg = "The handler entered a transaction that it did not leave, so nothing could be committed."
        raise JobsError(msg)


def check_transaction(attempt: RunningAttempt) -> None:
    """Refuse to record a success in another transaction than the one in which the handler's rows were written.

    SQLite rolls back a whole transaction on some errors (a full disk, a broken read); a handler that swallows such an
    error would go on outside of any transaction, and its COMMIT would report success. On each database a handler can
    write COMMIT or ROLLBACK itself.

    Raises:
        JobsError: The transaction is not open any more.
    """
    connection = connections[attempt.using]
    hygiene.check_block(connection)
    if connection.vendor == "sqlite" and connection.connection is not None and not connection.connection.in_transaction:
        msg = "The database ended the transaction with an error that the handler swallowed; its rows are not there."
        raise JobsError(msg)


def _settle(attempt: RunningAttempt, error: BaseException, *, operation: str, step: str | None) -> None:
    """Find out what an error that came with the COMMIT, or from code that runs after it, left behind."""
    if was_refused(error):
        raise error
    is_lost = isinstance(error, LOST)
    if is_lost or hygiene.has_transaction(connections[attempt.using]):  # inside it, the success would seem committed
        drop(attempt.using)
    if not _happened(attempt, step):
        if not is_lost:
            raise error
        msg = f"The reply to the COMMIT of {operation} was lost, and the database shows that it did not happen."
        raise CommitLostError(msg) from error
    telemetry.emit("commit.settled", job_id=attempt.job_id, attempt_id=attempt.attempt_id, operation=operation)
    logger.warning("The COMMIT of %s in job %s happened although it ended with %r", operation, attempt.job_id, error)
    if not is_lost:
        attempt.completed = attempt.completed or step is None
        raise error


def _happened(attempt: RunningAttempt, step: str | None) -> bool:
    truth = patiently(attempt, lambda: read_back(attempt))
    if truth.outcome == "succeeded":
        return True
    if step is not None and patiently(attempt, lambda: finished_step(attempt, step)) is not None:
        return True
    if truth.owns:
        return False
    msg = f"Attempt {attempt.number} of job {attempt.job_id} no longer owns the job."
    raise LeaseLostError(msg, operation="commit")


def _note_long(attempt: RunningAttempt, operation: str, lasted: float) -> None:
    """SQLite has one writer: a transaction longer than others wait for it makes their writes fail."""
    if connections[attempt.using].vendor != "sqlite" or lasted <= busy_timeout(attempt.using):
        return
    telemetry.emit("transaction.long", job_type=attempt.claimed.job_type, operation=operation, seconds=lasted)
    logger.warning(
        "The transaction of %s in %s held SQLite's only write lock for %.1f s, longer than others wait for it. Declare "
        "atomic=False, or do slow work before the first write.",
        operation,
        attempt.claimed.job_type,
        lasted,
    )
