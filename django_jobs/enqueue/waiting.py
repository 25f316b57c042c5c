"""Waiting for the end of a job, for as long as the caller allows, through a database that is away for a while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connections

from django_jobs.enqueue.inside import current, in_transaction
from django_jobs.enqueue.result import JobResult, read
from django_jobs.exceptions import DefinitionError, WouldWaitForeverError

logger = logging.getLogger("django_jobs.enqueue")

FIRST_LOOK = 0.02  # seconds from one look to the next; each is half as long again
LONGEST_LOOK = 0.5


def wait(job_id: uuid.UUID, *, using: str, timeout: float | timedelta | None) -> Any:
    """Wait until a job has ended, and return its result.

    Args:
        job_id: The job.
        using: Its database.
        timeout: Seconds, or a timedelta; None waits as long as it takes.

    Raises:
        JobFailedError: It became a dead letter, or was cancelled; ``result`` has the details.
        ResultTimeoutError: It has not ended in time; it goes on.
        ResultGoneError: It was pruned, or never committed.
        WouldWaitForeverError: A transaction is open here, so the job or its end cannot be seen, or this is a handler,
            which would hold a thread that the other job may need.
        OperationalError: The database does not answer, and the time is over; until then it is asked again.
    """
    for pause in _looks(_seconds(timeout)):
        found = _look(job_id, using=using, is_last=pause is None, for_ever=timeout is None)
        if found is not None and (found.is_finished or pause is None):
            return found.value()
        time.sleep(pause or 0)
    raise AssertionError  # the last look returns or raises


async def await_end(job_id: uuid.UUID, *, using: str, timeout: float | timedelta | None) -> Any:  # noqa: ASYNC109  as get()
    """Do what :func:`wait` does, from async code, without holding a thread."""
    for pause in _looks(_seconds(timeout)):
        found = await sync_to_async(_look)(job_id, using=using, is_last=pause is None, for_ever=timeout is None)
        if found is not None and (found.is_finished or pause is None):
            return found.value()
        await asyncio.sleep(pause or 0)
    raise AssertionError  # the last look returns or raises


def _look(job_id: uuid.UUID, *, using: str, is_last: bool, for_ever: bool) -> JobResult | None:
    """Read the job; None when the database did not answer, and there is time to look again on a new connection."""
    connection = connections[using]
    try:
        found = read(job_id, using=using)
    except (OperationalError, InterfaceError) as error:
        if is_last or connection.in_atomic_block:
            raise
        logger.warning("The database did not say what became of job %s; it is asked again: %s", job_id, error)
        with contextlib.suppress(Exception):  # the socket is gone; what matters is that Django forgets it
            connection.close()
        return None
    if not found.is_finished:
        _check_may_wait(using, for_ever=for_ever)
    return found


def _looks(seconds: float | None) -> Iterator[float | None]:
    """Yield how long to wait after each look; None after the last one."""
    deadline = None if seconds is None else time.monotonic() + seconds
    pause = FIRST_LOOK
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            yield None
            return
        yield pause if left is None else min(pause, left)
        pause = min(pause * 1.5, LONGEST_LOOK)


def _seconds(timeout: object) -> float | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        msg = f"timeout must be a number of seconds from 0 on, or a timedelta, not {timeout!r}."
        raise DefinitionError(msg)
    return float(seconds)


def _check_may_wait(using: str, *, for_ever: bool) -> None:
    if current.get() is not None:
        msg = (
            "A handler that waits for another job holds a thread that the other one may need. Let the other job "
            "enqueue what follows."
        )
        raise WouldWaitForeverError(msg)
    if in_transaction(connections[using]):
        msg = (
            f"A transaction is open on {using!r}: a job that was enqueued in it starts when it has committed, and its "
            "end may not be seen inside. Wait after the block."
        )
        raise WouldWaitForeverError(msg)
    if for_ever and connections[using].in_atomic_block:
        msg = (
            "This is a test in a transaction that never commits: no other process sees its jobs. Run them with JobsKit "
            "first, give a timeout, or use a TransactionTestCase."
        )
        raise WouldWaitForeverError(msg)
