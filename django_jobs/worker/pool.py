"""The threads of one child: each takes an attempt, runs it, and says that it is free again."""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable

from django.db import connections

from django_jobs.worker.attempt import RunningAttempt


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

    def stop(self) -> None:
        """Let idle threads end and close their connections."""
        for _ in self.threads:
            self._tasks.put(None)
        for thread in self.threads:
            thread.join(timeout=1)

    def _work(self) -> None:
        try:
            while (attempt := self._tasks.get()) is not None:
                try:
                    self._execute(attempt)
                finally:
                    with self._lock:
                        self._running.pop(attempt.attempt_id, None)
                    self._finished()
        finally:
            connections.close_all()
