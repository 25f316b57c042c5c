"""The threads of one child: each takes an attempt, runs it, and says that it is free again."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Callable

from django.db import connections

from django_jobs import clock
from django_jobs.worker.attempt import RunningAttempt

logger = logging.getLogger("django_jobs.worker")


class Pool:
    """A fixed number of threads; the loop never hands over more attempts than threads are free."""

    def __init__(self, threads: int, execute: Callable[[RunningAttempt], None], finished: Callable[[], None]) -> None:
        self._tasks: queue.SimpleQueue[RunningAttempt | None] = queue.SimpleQueue()
        self._execute = execute
        self._finished = finished
        self._lock = threading.Lock()
        self._running: dict[uuid.UUID, RunningAttempt] = {}
        self.size = threads
        self.threads = [
            threading.Thread(target=self._work, name=f"django_jobs-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def submit(self, attempt: RunningAttempt) -> None:
        """Hand over an attempt."""
        with self._lock:
            self._running[attempt.attempt_id] = attempt
        self._tasks.put(attempt)

    @property
    def running(self) -> list[RunningAttempt]:
        """The attempts that have not ended; one that was revoked stays here while its thread goes on."""
        with self._lock:
            return list(self._running.values())

    @property
    def free(self) -> int:
        """How many threads wait."""
        with self._lock:
            return self.size - len(self._running)

    def stop(self, *, seconds: float = 1.0) -> None:
        """Let idle threads end and close their connections; those that still run a handler are not waited for."""
        for _ in self.threads:
            self._tasks.put(None)
        deadline = clock.boot_seconds() + seconds
        while clock.boot_seconds() < deadline and sum(map(threading.Thread.is_alive, self.threads)) > len(self.running):
            for thread in self.threads:
                thread.join(timeout=0.02)

    def _work(self) -> None:
        try:
            while (attempt := self._tasks.get()) is not None:
                try:
                    self._execute(attempt)
                except BaseException:  # a thread that ends would leave a slot that never runs anything
                    logger.exception("Running attempt %s of job %s failed", attempt.number, attempt.job_id)
                finally:
                    with self._lock:
                        self._running.pop(attempt.attempt_id, None)
                    self._finished()
        finally:
            connections.close_all()
