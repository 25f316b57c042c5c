"""What is done with an error in a loop that must go on: counted each time, logged seldom, and never raised."""

from __future__ import annotations

import logging
import threading

from django.db import DatabaseError

from django_jobs import clock, telemetry
from django_jobs.worker.connection import drop
from django_jobs.worker.outage import outage

logger = logging.getLogger("django_jobs.worker")

TELL_EVERY = 10.0  # seconds between two tracebacks of the same loop


class Failures:
    """The failures of one process's loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def note(self, loop: str, error: Exception, *, using: str) -> None:
        """Count a failure of ``loop``, drop this thread's connection, and log it unless that was done lately."""
        drop(using)
        telemetry.emit("loop.failed", loop=loop, error=type(error).__name__)
        if isinstance(error, DatabaseError):
            outage.failed(error)
            return
        now = clock.boot_seconds()
        with self._lock:
            if now - self._told.get(loop, float("-inf")) < TELL_EVERY:
                self._untold[loop] = self._untold.get(loop, 0) + 1
                return
            self._told[loop] = now
            more = self._untold.pop(loop, 0)
        logger.error(
            "The worker's own work (%s) failed%s; trying again",
            loop,
            f", {more} times more since the last such line" if more else "",
            exc_info=error,
        )


failures = Failures()
