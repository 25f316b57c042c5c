"""The threads of one child: each takes an attempt, runs it, and says that it is free again.

Coroutines run on one event loop. Each has a thread all the same, in which it asks the database and which sleeps while
it waits; so that many can wait, those threads are counted apart.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from django.db import connections

from django_jobs import clock, telemetry
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.loops import EventLoop

logger = logging.getLogger("django_jobs.worker")

Run = Callable[[RunningAttempt], None]

KEEP = 0.25  # seconds for which a place for coroutines that runs nothing keeps its connections


class Pool:
    """A fixed number of threads; the loop never hands over more attempts than threads are free.

    A coroutine takes one of ``coroutines`` places beside them, and one of theirs when there is none left.

    A thread that ends all the same, by an exception that something raises in it from outside, is replaced. The new one
    runs what its predecessor had not begun; what it had begun is handed to ``abandoned``.
    """

    def __init__(
        self, threads: int, execute: Run, abandoned: Run, finished: Callable[[], None], *, coroutines: int = 0
    ) -> None:
        self._execute = execute
        self._abandoned = abandoned
        self._finished = finished
        self._lock = threading.Lock()
        self._at: dict[int, RunningAttempt] = {}  # place of a thread → what it has to run
        self._stopped = False
        self._places = range(threads)
        self._places_beside = range(threads, threads + coroutines)
        self._loop: EventLoop | None = None
        self._tasks: dict[int, queue.SimpleQueue[RunningAttempt | None]] = {}
        self._threads: dict[int, threading.Thread] = {}
        for place in self._places:
            self._start(place)

    def _start(self, place: int) -> None:
        tasks: queue.SimpleQueue[RunningAttempt | None] = queue.SimpleQueue()
        self._tasks[place] = tasks
        thread = threading.Thread(target=self._work, args=(place, tasks), name=f"django_jobs-{place}", daemon=True)
        self._threads[place] = thread
        try:
            thread.start()
        except RuntimeError as error:  # tried again at the next look
            logger.error("Thread %s could not be started: %s", thread.name, error)

    @property
    def threads(self) -> list[threading.Thread]:
        """Those that were started."""
        return list(self._threads.values())

    def submit(self, attempt: RunningAttempt) -> None:
        """Hand over an attempt."""
        with self._lock:
            place = self._place_for(attempt)
            self._at[place] = attempt
        if self._places_beside:
            attempt.shared_loop = self._shared_loop
        if place not in self._threads:
            self._start(place)
        self._tasks[place].put(attempt)

    def _place_for(self, attempt: RunningAttempt) -> int:
        places = [*self._places_beside, *self._places] if attempt.definition.is_coroutine else self._places
        return next(place for place in places if place not in self._at)

    def _shared_loop(self) -> EventLoop:
        with self._lock:
            if self._loop is None:
                loop = EventLoop()
                loop.start()
                self._loop = loop
            return self._loop

    @property
    def running(self) -> list[RunningAttempt]:
        """The attempts that have not ended; one that was revoked stays here while its thread goes on."""
        with self._lock:
            return list(self._at.values())

    @property
    def free(self) -> int:
        """How many attempts of any kind may be handed over."""
        with self._lock:
            return sum(place not in self._at for place in self._places)

    def replace_dead(self) -> None:
        """Start a thread in the place of each that has ended; called by the loop at each turn."""
        if self._stopped:
            return
        for place, thread in list(self._threads.items()):
            if thread.is_alive():
                continue
            logger.error("Thread %s ended from outside; another one takes its place", thread.name)
            telemetry.emit("thread.replaced", thread=thread.name)
            self._start(place)
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
            for thread in filter(threading.Thread.is_alive, self.threads):
                thread.join(timeout=0.02)
        if self._loop is not None and not self.running:
            self._loop.close(seconds=max(1.0, deadline - clock.boot_seconds()))

    def _work(self, place: int, tasks: queue.SimpleQueue[RunningAttempt | None]) -> None:
        try:
            while (attempt := self._next(place, tasks)) is not None:
                try:
                    (self._abandoned if attempt.was_begun else self._execute)(attempt)
                except BaseException:  # a thread that ends leaves a slot that runs nothing until somebody looks
                    logger.exception("Running attempt %s of job %s failed", attempt.number, attempt.job_id)
                with self._lock:
                    self._at.pop(place, None)
                self._finished()
        finally:
            connections.close_all()

    def _next(self, place: int, tasks: queue.SimpleQueue[RunningAttempt | None]) -> RunningAttempt | None:
        """Wait for work. A place beside the threads, of which there may be many, keeps no connection meanwhile."""
        if place in self._places_beside:
            try:
                return tasks.get(timeout=KEEP)
            except queue.Empty:
                connections.close_all()
        return tasks.get()
