"""Whether a worker sees its database: told once when it does not and once when it does again; no reason to restart.

A worker is blind when its heartbeat, or a child's look for jobs, has not succeeded for ``blind_after``. A busy child
does not look, so it cannot make its worker blind.
"""

from __future__ import annotations

import logging

from django_jobs import clock, telemetry

logger = logging.getLogger("django_jobs.worker")


class Sight:
    """The sight of one worker. All times are seconds of the clock that :func:`django_jobs.clock.boot_seconds` reads."""

    def __init__(self, *, worker: str, database: str, after: float) -> None:
        self.after = after
        self.why = ""  # why it is blind; empty while it sees
        self._worker = worker
        self._database = database
        self._started = clock.boot_seconds()
        self._since = 0.0

    @property
    def is_blind(self) -> bool:
        """Whether the worker is blind."""
        return bool(self.why)

    def look(self, *, beat_at: float | None, failing: dict[int, float]) -> None:
        """Judge by the last good heartbeat, and by the last good look of each child whose looks fail now."""
        now = clock.boot_seconds()
        last = {"no heartbeat was written": self._started if beat_at is None else beat_at}
        last |= {f"child {child} could not look for jobs": at for child, at in failing.items()}
        reason, since = min(last.items(), key=lambda item: item[1])
        blind = now - since >= self.after
        if blind and not self.why:
            self._since = since
            telemetry.emit("worker.blind", worker=self._worker, database=self._database, seconds=now - since)
            logger.warning(
                "Worker %s is blind: %s for %.0f s. It goes on trying; jobs wait until database %r answers",
                self._worker,
                reason,
                now - since,
                self._database,
            )
        elif self.why and not blind:
            lasted = now - self._since
            telemetry.emit("worker.sees", worker=self._worker, database=self._database, seconds=lasted)
            logger.info("Worker %s sees database %r again after %.1f s", self._worker, self._database, lasted)
        self.why = f"{reason} for {now - since:.0f} s" if blind else ""
