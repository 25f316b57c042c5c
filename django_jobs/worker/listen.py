"""The worker's ear: a thread of the supervisor that hears notifications and rings for the children.

Nothing depends on it. Whatever it misses, the children's polls find.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence

from django.db import connections

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.lines import one_line
from django_jobs.store.notify import EVENTS
from django_jobs.worker.line import ERRORS, Line, opened
from django_jobs.worker.wake import Wake

logger = logging.getLogger("django_jobs.worker")

FIRST_PAUSE = 0.1  # seconds before the connection is made again
LONGEST_PAUSE = 10.0
DEAF_PAUSE = 60.0  # seconds until a path on which nothing was heard is tried again
TEST_EVERY = 60.0  # seconds; a connection that died silently is found by this test


def wants_to_listen(using: str) -> bool:
    """Say whether a worker of these settings can hear notifications at all; warn if it is only the pooler's fault."""
    rules = get_settings()
    if connections[using].vendor != "postgresql" or not rules.notify:
        return False
    if rules.transaction_pooler and not rules.listen_dsn:
        logger.warning(
            "TRANSACTION_POOLER is set and LISTEN_DSN is not, so notifications cannot be heard; idle workers look for "
            "jobs every %.0f s",
            rules.poll.total_seconds(),
        )
        return False
    return True


class Listener:
    """Hears for all children of one worker, over one connection that it makes again for as long as it lives."""

    def __init__(
        self,
        using: str,
        queues: Sequence[str],
        ring: Callable[[], None],
        ring_for_events: Callable[[], None] = lambda: None,
    ) -> None:
        self.works = False
        self._using = using
        self._queues = frozenset(queues)
        self._ring = ring
        self._ring_for_events = ring_for_events
        self._wake = Wake()
        self._stopped = False
        self._pause = FIRST_PAUSE
        self._told = ""
        self._thread = threading.Thread(target=self._run, name="django_jobs-ear", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; never waits for the database."""
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped:
            try:
                with opened(self._using) as line:
                    problem = self._serve(line)
                self._note_deaf(problem)
            except ERRORS as error:
                self._tell("lost", f"The connection that hears notifications is away ({_first_line(error)})")
            except Exception:  # the ear is a convenience: nothing that happens in it may end the worker
                logger.exception("Hearing notifications failed; trying again")
            self.works = False
            if not self._stopped:
                self._wake.wait(self._pause * (0.5 + random.random() / 2))  # noqa: S311  spreads load, guards nothing
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _serve(self, line: Line) -> str:
        """Hear until told to stop, or until the self-test fails; returns why."""
        tested_at = float("-inf")
        while not self._stopped:
            if clock.boot_seconds() - tested_at >= TEST_EVERY:
                problem = line.problem()
                if problem:
                    return problem
                tested_at = clock.boot_seconds()
                if not self.works:
                    self._note_works()
            line.wait(TEST_EVERY - (clock.boot_seconds() - tested_at), also=self._wake.read_end)
            heard = set(line.heard())
            if EVENTS in heard:
                self._ring_for_events()
            heard.discard(EVENTS)
            if heard and not (self._queues and self._queues.isdisjoint(heard)):
                self._ring()
        return ""

    def _note_works(self) -> None:
        self.works = True
        self._pause = FIRST_PAUSE
        if self._told:
            logger.info("Notifications are heard again")
        self._told = ""
        telemetry.emit("worker.listens")
        self._ring()  # what was notified meanwhile was missed
        self._ring_for_events()

    def _note_deaf(self, problem: str) -> None:
        if self._stopped:
            return
        telemetry.emit("worker.deaf", reason=problem)
        if not self.works:  # else a connection that worked died silently, and a new one may be heard at once
            self._pause = DEAF_PAUSE
        self._tell("deaf", f"Notifications cannot be heard: {problem}. Set LISTEN_DSN to a direct connection")

    def _tell(self, kind: str, text: str) -> None:
        """Warn once, until notifications were heard again."""
        if self._stopped or self._told == kind:
            return
        self._told = kind
        poll = get_settings().poll.total_seconds()
        logger.warning("%s; until then idle workers look for jobs every %.0f s", text, poll)


def _first_line(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
