"""Hearing that somebody wants running jobs cancelled: one read a second for all attempts of a child, none when idle."""

from __future__ import annotations

import logging

from django_jobs import clock, telemetry
from django_jobs.store import cancels_asked
from django_jobs.worker.failures import failures
from django_jobs.worker.pool import Pool
from django_jobs.worker.watch import watch

logger = logging.getLogger("django_jobs.worker")

LOOK_EVERY = 0.9  # seconds; the loop turns twice a second while something runs
LOOK_LIMIT = 2.0  # seconds that one look may take: the same loop watches the leases


class CancelEar:
    """Tells the attempts of one child that they are to end; their handlers hear it through the context."""

    def __init__(self, pool: Pool, *, using: str) -> None:
        self._pool = pool
        self._using = using
        self._looked_at = float("-inf")

    def listen(self) -> None:
        """Look if that is due and something runs; never raises."""
        now = clock.boot_seconds()
        if now - self._looked_at < LOOK_EVERY:
            return
        running = [attempt for attempt in self._pool.running if not attempt.cancel_requested]
        if not running:
            return
        self._looked_at = now
        try:
            with watch.over(self._using, LOOK_LIMIT):
                asked = cancels_asked(
                    [(attempt.job_id, attempt.claimed.generation) for attempt in running], using=self._using
                )
        except Exception as error:  # noqa: BLE001  the loop that watches leases must go on
            failures.note("cancel", error, using=self._using)
            return
        for attempt in running:
            if attempt.job_id in asked:
                attempt.cancel_requested = True
                logger.info("Attempt %s of job %s is asked to end: cancelled", attempt.number, attempt.job_id)
                telemetry.emit("attempt.cancel_heard", job_id=attempt.job_id, attempt_id=attempt.attempt_id)
