"""Copies of the worker's process that a handler makes by a fork and that come back from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import NoReturn

from django_jobs.worker.attempt import RunningAttempt

FORK_RETURNED = 70  # exit code; EX_SOFTWARE of sysexits.h


@contextlib.contextmanager
def without_forks(attempt: RunningAttempt) -> Iterator[None]:
    """End a copy of this process that comes out of the block, before other code of the project runs in it."""
    try:
        yield
    finally:
        if attempt.is_forked:
            end_fork(attempt)


def end_fork(attempt: RunningAttempt) -> NoReturn:
    """End a process that a handler made by a fork and that came back from it: the end is for the other one to record.

    Both have one connection to the database; whoever of them used it would break what the other one is told.
    """
    text = f"Job {attempt.job_id}: a process that its handler had forked returned from the handler, and was ended.\n"
    os.write(2, text.encode())  # a lock of the logging module may be held for ever here
    os._exit(FORK_RETURNED)
