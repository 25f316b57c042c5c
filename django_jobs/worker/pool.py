"""The threads of one child: each takes an attempt, runs it, and says that it is free again."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from django.db import connections

from django_jobs import clock, telemetry
from django_jobs.worker.attempt import RunningAttempt

logger = logging.getLogger("django_jobs.worker")

Run = Callable[[RunningAttempt], None]


class Pool:
    """A fixed number of threads; the loop never hands over more attempts than threads are free.

    A thread that ends all the same, by an exception that something raises in it from outside, is replaced. The new one
    runs what its predecessor had not begun; what it had begun is handed to ``abandoned``.
    """

    def __init__(self, threads: int, execute: Run, abandoned: Run, finished: Callable[[], None]) -> None:
        self._execute = execute
        self._abandoned = abandoned
        self._finished = finished
        self._lock = threading.Lock()
        self._at: dict[int, RunningAttempt] = {}  # place of a thread → what it has to run
        self._stopped = False
        self.size = threads
        self._tasks: dict[int, queue.SimpleQueue[RunningAttempt | None]] = {}
        self.threads = [self._start(place) for place in range(threads)]

    def _start(self, place: int) -> threading.Thread:
        tasks: queue.SimpleQueue[RunningAttempt | None] = queue.SimpleQueue()
        self._tasks[place] = tasks
        thread = threading.Thread(target=self._work, args=(place, tasks), name=f"django_jobs-{place}", daemon=True)
        thread.start()
        return thread

    def submit(self, attempt: RunningAttempt) -> None:
        """Hand over an attempt."""
        with self._lock:
            place = next(place for place in range(self.size) if place not in self._at)
            self._at[place] = attempt
        self._tasks[place].put(attempt)

    @property
    def running(self) -> list[RunningAttempt]:
        """The attempts that have not ended; one that was revoked stays here while its thread goes on."""
        with self._lock:
            return list(self._at.values())

    @property
    def free(self) -> int:
        """How many threads wait."""
        with self._lock:
            return self.size - len(self._at)

    def replace_dead(self) -> None:
        """Start a thread in the place of each that has ended; called by the loop at each turn."""
        if self._stopped:
            return
        for place, thread in enumerate(self.threads):
            if thread.is_alive():
                continue
            logger.error("Thread %s ended from outside; another one takes its place", thread.name)
            telemetry.emit("thread.replaced", thread=thread.name)
            self.threads[place] = self._start(place)
            with self._lock:
                left = self._at.get(place)
            if left is not None:
                self._tasks[place].put(left)

    def stop(self, *, seconds: float = 1.0) -> None:
        """Let idle threads end and close their connections; those that still run a handler are not waited for."""
        self._stopped = True
        for tasks in self._tasks.values():
            tasks.put(None)
        deadline = clock.boot_seconds() + seconds
        while clock.boot_seconds() < deadline and sum(map(threading.Thread.is_alive, self.threads)) > len(self.running):
            for thread in self.threads:
                thread.join(timeout=0.02)

    def _work(self, place: int, tasks: queue.SimpleQueue[RunningAttempt | None]) -> None:
        try:
            while (attempt := tasks.get()) is not None:
                try:
                    (self._abandoned if attempt.was_begun else self._execute)(attempt)
                except BaseException:  # a thread that ends leaves a slot that runs nothing until somebody looks
                    logger.exception("Running attempt %s of job %s failed", attempt.number, attempt.job_id)
                with self._lock:
                    self._at.pop(place, None)
                self._finished()
        finally:
            connections.close_all()
