"""The thread of a child that delivers events: turns of a dispatcher, and sleep between them until somebody wakes it."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from django.db import connections, reset_queries

from django_jobs import clock
from django_jobs.outbox.destinations import known_destinations
from django_jobs.outbox.dispatcher import Dispatcher
from django_jobs.outbox.wake import listen
from django_jobs.store.notify import EVENTS, announce_sleep
from django_jobs.worker.company import Company
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.failures import failures
from django_jobs.worker.idle import ANNOUNCE_EVERY, ECHOES
from django_jobs.worker.watch import watch

logger = logging.getLogger("django_jobs.worker")

CALL_LIMIT = 10.0  # seconds that one database call may take
PAUSES = (0.1, 3.0)  # seconds to wait after a failure, at first and at most


class Dispatching:
    """Runs a dispatcher in a thread of its own; does nothing in a process that knows no destination."""

    def __init__(self, config: WorkerConfig, company: Company, *, hears: Callable[[], bool] = lambda: False) -> None:
        self._config = config
        self._hears = hears
        self._announced_at = self._news_at = float("-inf")
        self._company = company
        company.wake_deliveries = self.wake
        self._wake = threading.Event()
        self._stop = self._told_stuck = False
        self._failed_since = 0.0
        self._end_listening: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self.dispatcher: Dispatcher | None = None

    def start(self) -> None:
        """Begin, if there is somewhere to deliver to."""
        if not known_destinations():
            return
        self.dispatcher = Dispatcher(
            worker_id=self._config.uuid,
            child=self._config.child,
            using=self._config.database,
            guarded=self._guarded,
            delivering=lambda suspect: self._company.delivering(suspect=suspect),
        )
        self.dispatcher.stopping = lambda: self._stop
        self._end_listening = listen(self.wake)
        self._thread = threading.Thread(target=self._run, name="django_jobs-dispatch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the dispatcher look now."""
        self._wake.set()

    def note_events(self) -> None:
        """Let it look now, because a notification came."""
        self._news_at = clock.boot_seconds()
        self.wake()

    def replace_dead(self) -> None:
        """Start another thread if it was ended from outside; called by the loop at each turn."""
        if self._thread is not None and not self._thread.is_alive() and not self._stop:
            logger.error("The thread that delivers events ended from outside; another one takes its place")
            self._end_listening()
            self.start()

    def tell_if_stuck(self) -> None:
        """Log once that a publisher hangs: nothing else is delivered from this process until it returns."""
        stuck, told = self._company.is_stuck, self._told_stuck
        self._told_stuck = stuck
        if stuck and not told:
            logger.error(
                "What publishes here has not returned for longer than any delivery may last; nothing else is delivered "
                "from this process until it does, and jobs no longer wait for it"
            )

    def is_nothing_left(self) -> bool:
        """Say whether no delivery is left that this process could make."""
        return self.dispatcher is None or self.dispatcher.is_nothing_left()

    def begin_stop(self) -> None:
        """Claim nothing more."""
        self._stop = True
        self._wake.set()
        self._end_listening()

    def stop(self, *, seconds: float) -> None:
        """Claim nothing more, and wait so long for what is being published."""
        self.begin_stop()
        if self._thread is not None:
            self._thread.join(timeout=seconds)
            if self._thread.is_alive():
                logger.warning("Deliveries that are under way are left to their lease")

    def _guarded(self) -> AbstractContextManager[object]:
        return watch.over(self._config.database, CALL_LIMIT)

    def _run(self) -> None:
        assert self.dispatcher is not None  # noqa: S101  start() made it
        try:
            while not self._stop:
                self._wake.clear()
                pause = self._turn(self.dispatcher)
                if pause > 0:
                    self._wake.wait(pause)
        finally:
            self.dispatcher.close()
            connections.close_all()

    def _turn(self, dispatcher: Dispatcher) -> float:
        """Do one round; returns how long to sleep after it."""
        try:
            due = dispatcher.turn()
            if due != 0.0 and self._asks():
                due = 0.0
        except Exception as error:  # noqa: BLE001  whatever it is, the loop must go on
            failures.note("dispatch", error, using=self._config.database)
            now = clock.boot_seconds()
            self._failed_since = self._failed_since or now
            return min(PAUSES[0] + (now - self._failed_since) / 4, PAUSES[1])
        # That an outage is over is said by those who write all the time: a locked SQLite still answers reads.
        self._failed_since = 0.0
        reset_queries()  # with DEBUG, Django keeps them
        longest = self._config.poll * (0.9 + random.random() / 10)  # noqa: S311  spreads load, guards nothing
        echo = self._until_echo()
        return min(wait for wait in (longest, due, echo) if wait is not None)

    def _asks(self) -> bool:
        """Ask for notifications if they are heard; returns whether what was stored before needs another look."""
        now = clock.boot_seconds()
        if not self._hears() or now - self._announced_at < ANNOUNCE_EVERY:
            return False
        with self._guarded():
            announce_sleep([EVENTS], using=self._config.database)
        self._announced_at = now
        return True

    def _until_echo(self) -> float | None:
        """Return when to look again after a notification: what a process stores right after one comes without."""
        now = clock.boot_seconds()
        return next((self._news_at + after - now for after in ECHOES if self._news_at + after > now), None)
