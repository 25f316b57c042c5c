"""Telling about a database that does not answer: once when it begins, seldom while it lasts, once when it is over."""

from __future__ import annotations

import logging
import threading

from django_jobs import clock, telemetry
from django_jobs.domain.lines import one_line
from django_jobs.store.contention import is_contention

logger = logging.getLogger("django_jobs.worker")

REMIND_EVERY = 60.0  # seconds between two lines about the same outage
OVER_AFTER = 3.0  # seconds without a failure after which a success ends the outage: threads fail and succeed in turn


class Outage:
    """The outages of one process; every thread tells what it meets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        self._told = 0.0
        self._last = 0.0

    def failed(self, error: BaseException) -> None:
        """Count a failure, and log it if nothing was logged about this outage yet or for a minute."""
        if is_contention(error):  # it answered: another transaction was first
            telemetry.emit("database.contended", error=type(error).__name__)
            return
        now = clock.boot_seconds()
        telemetry.emit("database.failed", error=type(error).__name__)
        with self._lock:
            self._last = now
            if not self._since:
                self._since = now
            elif now - self._told < REMIND_EVERY:
                return
            self._told = now
        logger.warning(
            "The database does not answer (%s: %s); trying again until it does",
            type(error).__name__,
            one_line(str(error).strip().partition("\n")[0]),
        )

    def answered(self) -> None:
        """End the outage if no thread has met a failure for some seconds."""
        if not self._since:
            return
        with self._lock:
            now = clock.boot_seconds()
            if not self._since or now - self._last < OVER_AFTER:
                return
            lasted, self._since = self._last - self._since, 0.0
        logger.info("The database answers again; the last failure came %.1f s after the first", lasted)


outage = Outage()
