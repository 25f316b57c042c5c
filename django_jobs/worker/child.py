"""A child process: claims, runs and watches attempts. Start with ``python -m django_jobs.worker.child CONFIG``."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import threading
from enum import IntEnum

import django
from django.db import connections

from django_jobs import clock
from django_jobs.exceptions import HardTimeoutError, LeaseLostError
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.wake import Wake

logger = logging.getLogger("django_jobs.worker")

RETRY_LOG_EVERY = 10.0  # seconds between two log lines about the same outage


class Exit(IntEnum):
    """How a child or a worker ended, as its exit code."""

    CLEAN = 0
    FAILURE = 1
    USAGE = 2
    GRACE_EXCEEDED = 3
    RECYCLE = 64  # child only: code ran past its lease; a fresh process takes over


class Child:
    """The loop of one child. Signal handlers only set a flag and wake it."""

    def __init__(self, config: WorkerConfig) -> None:
        from django_jobs.worker.claiming import Claimer
        from django_jobs.worker.execute import execute
        from django_jobs.worker.pool import Pool

        self.config = config
        self.wake = Wake()
        self.stops = 0
        self.recycling = False
        self.claimer = Claimer(config)
        self.pool = Pool(config.threads, execute, self.wake.set)
        self._isolated = False
        self._error_since = 0.0
        self._logged_at = float("-inf")

    def request_stop(self) -> None:
        """Drain; a second call ends at once."""
        self.stops += 1
        self.wake.set()

    def run(self) -> int:
        """Serve until stopped; returns the exit code."""
        while not self.stops and not self.recycling:
            claimed = self._turn()
            if claimed is None:
                self.wake.wait(self._pause())
            elif claimed == 0:
                if self.config.drain and not self.pool.running and self._nothing_left():
                    break
                self.wake.wait(self.config.poll * (0.75 + random.random() / 4))  # noqa: S311
        code = self._drain()
        self.pool.stop()
        connections.close_all()
        return code

    def _nothing_left(self) -> bool:
        from django_jobs.store import next_due

        with self._database_errors():
            return next_due(self.claimer.queues(), using=self.config.database) is None
        return False

    def _turn(self) -> int | None:
        """Do one round; returns how many were claimed, or None when the database did not answer."""
        self._end_overdue()
        running = self.pool.running
        self._isolated = self._isolated and bool(running)
        free = self.pool.free
        if self._isolated or free == 0 or self.recycling:
            return 0
        answered = False
        claimed = []
        with self._database_errors():
            claimed = self.claimer.take(free, len(running))
            answered = True
        for attempt in claimed:
            self._isolated = self._isolated or bool(attempt.claimed.alone)
            self.pool.submit(attempt)
        if answered:
            self._error_since = 0.0
        return len(claimed) if answered else None

    @contextlib.contextmanager
    def _database_errors(self):  # type: ignore[no-untyped-def]
        from django_jobs.worker.connection import LOST, drop

        try:
            yield
        except LOST as error:
            drop(self.config.database)
            now = clock.boot_seconds()
            self._error_since = self._error_since or now
            if now - self._logged_at >= RETRY_LOG_EVERY:
                self._logged_at = now
                logger.warning("The database does not answer (%s); trying again until it does", error)

    def _pause(self) -> float:
        out_for = clock.boot_seconds() - self._error_since if self._error_since else 0.0
        return min(0.1 + out_for / 4, 3.0) * (0.5 + random.random() / 2)  # noqa: S311

    def _end_overdue(self) -> None:
        """Take back attempts whose handler ran past its lease, and plan the end of this process: code cannot be stopped."""
        from django_jobs.worker.finish import record_failure

        for attempt in self.pool.running:
            if attempt.revoked or not attempt.is_overdue:
                continue
            attempt.revoke("it ran past its lease")
            self.recycling = True
            budget = attempt.definition.terms.lease
            error = HardTimeoutError(f"The handler ran past its lease of {budget} without telling progress.")
            with contextlib.suppress(LeaseLostError), self._database_errors():
                record_failure(attempt, error)

    def _drain(self) -> int:
        """Let running handlers end, then give back what has not; returns the exit code."""
        deadline = clock.boot_seconds() + self.config.grace
        while self._waits_for(deadline):
            self._end_overdue()
            self.wake.wait(0.2)
        left = [attempt for attempt in self.pool.running if not attempt.revoked]
        for attempt in left:
            attempt.revoke("its worker stops")
            self._release(attempt)
        if self.recycling:
            return Exit.RECYCLE
        return Exit.GRACE_EXCEEDED if left else Exit.CLEAN

    def _waits_for(self, deadline: float) -> bool:
        running = [attempt for attempt in self.pool.running if not attempt.revoked]
        if self.stops > 1 or not running:
            return any(attempt.has_open_call for attempt in running)
        return clock.boot_seconds() < deadline or any(attempt.has_open_call for attempt in running)

    def _release(self, attempt) -> None:  # type: ignore[no-untyped-def]
        from django_jobs.store import release

        with self._database_errors():
            release(attempt, message="Its worker stopped before the handler had ended.")


def _watch_parent(pipe: int, child: Child) -> None:
    """Drain when the supervisor dies: nobody reports for this process any more."""
    with contextlib.suppress(OSError):
        os.read(pipe, 1)
    child.request_stop()


def main(argument: str) -> int:
    """Set up Django and serve."""
    config = WorkerConfig.from_json(argument)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides; a terminal sends it to the whole group
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: received.append(1))
    django.setup()
    from django_jobs.worker.connection import keep_connections

    keep_connections(config.database)
    child = Child(config)
    signal.signal(signal.SIGTERM, lambda *_: child.request_stop())
    for _ in received:
        child.request_stop()
    threading.Thread(target=_watch_parent, args=(config.parent_pipe, child), daemon=True).start()
    return child.run()


if __name__ == "__main__":
    code = main(sys.argv[1])
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a handler that cannot be ended must not keep the process
