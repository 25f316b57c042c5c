"""What a coroutine handler returned: run on a loop, while the thread of the attempt serves it."""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import Any

from django.db import connections

from django_jobs.worker import coroutines
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.connection import release
from django_jobs.worker.forks import end_fork
from django_jobs.worker.owned import Owned

logger = logging.getLogger("django_jobs.worker")


def awaited(attempt: RunningAttempt, result: Any) -> Any:
    """Run what a coroutine handler returned; whatever else a handler returned is its result.

    What it asks of the ORM runs here, in the thread that may have a transaction open.
    """
    if not inspect.isawaitable(result):
        return result
    if attempt.soft is not None:
        result = attempt.soft.drive(result)
    owner = Owned(attempt, end_copy=lambda: end_fork(attempt))
    if attempt.shared_loop is None:
        return coroutines.run(result, owner=owner, look=partial(_look, attempt))
    loop = attempt.shared_loop()
    attempt.is_on_shared_loop = True
    return coroutines.run(result, owner=owner, look=partial(_look, attempt), on=loop)


def _look(attempt: RunningAttempt, run: coroutines.Run, is_idle: bool) -> None:
    """Do what is to be done while a coroutine waits; an error here must not end the attempt before its coroutine."""
    try:
        run.loop.blocked.look()
        if attempt.revoked:
            run.cancel()
        elif attempt.is_on_shared_loop and is_idle:
            _release(attempt)
    except Exception:
        logger.exception("Looking after the coroutine of job %s failed", attempt.job_id)


def _release(attempt: RunningAttempt) -> None:
    """Give connections back: many may wait on one loop, and the server has connections for few."""
    attempt.disconnect(release)
    for connection in connections.all(initialized_only=True):
        if connection.alias != attempt.using:
            release(connection)
