"""Handlers, a propagator and a middleware for real workers; each tells the witness what it does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from django.utils import timezone, translation

from django_jobs import Attempting, Enqueueing, JobContext, Middleware, job
from tests.acceptance.handlers import FAST, insert_row, tell
from tests.carriers import tenant


class Telling(Middleware):
    """Tells the witness when it is entered and left."""

    @contextmanager
    def around_enqueue(self, enqueueing: Enqueueing) -> Iterator[None]:
        """Tell of an enqueue in this process."""
        tell("enqueue", enqueueing.rows[0]["n"])
        yield

    @contextmanager
    def around_attempt(self, attempt: Attempting) -> Iterator[None]:
        """Tell of an attempt."""
        n = attempt.arguments["n"]
        tell("enter", n, active=active())
        try:
            yield
        finally:
            tell("leave", n, active=active())


def active() -> list[str | None]:
    """Return what is active here."""
    return [tenant.get(), translation.get_language(), timezone.get_current_timezone_name()]


@job(type="acceptance.carried", retry=FAST)
def carried(n: int) -> None:
    """Tell what is active, in one transaction with a row."""
    tell("active", n, active=active())
    insert_row(n)


@job(type="acceptance.carried_on", retry=FAST, takes_context=True)
def carried_on(context: JobContext, n: int, more: int) -> None:
    """Tell it, and enqueue jobs that do."""
    tell("active", n, active=active())
    with context.complete():
        insert_row(n)
        carried.enqueue_many({"n": n + place} for place in range(1, more + 1))


@job(type="acceptance.carried_async", retry=FAST)
async def carried_async(n: int) -> None:
    """Tell it from a coroutine."""
    tell("active", n, active=active())


@job(type="acceptance.carried_fork", retry=FAST)
def carried_fork(n: int) -> None:
    """Fork, and let the copy come back from the handler."""
    copy = os.fork()
    if copy:
        os.waitpid(copy, 0)
