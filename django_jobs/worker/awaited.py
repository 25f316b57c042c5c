"""What a coroutine handler returned: run on a loop, while the thread of the attempt serves it."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from django.db import connections

from django_jobs.worker import coroutines
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.connection import release
from django_jobs.worker.forks import end_fork
from django_jobs.worker.loops import Owned


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
    attempt.is_on_shared_loop = True
    try:
        return coroutines.run(result, owner=owner, look=partial(_look, attempt), on=attempt.shared_loop())
    finally:
        attempt.is_on_shared_loop = False


def _look(attempt: RunningAttempt, run: coroutines.Run) -> None:
    """Do what is to be done while a coroutine waits."""
    run.loop.blocked.look()
    if attempt.revoked:
        run.cancel()
    elif attempt.is_on_shared_loop:
        attempt.disconnect(release)  # many may wait on one loop, and the server has connections for few
        for connection in connections.all(initialized_only=True):
            if connection.alias != attempt.using:
                release(connection)
