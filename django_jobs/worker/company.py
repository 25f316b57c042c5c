"""Who works beside whom in one child: jobs in their threads, and deliveries in the dispatcher's.

A process that dies takes everything along that runs in it. So what is suspected of ending processes runs without
company: a job while nothing is delivered, a delivery while no job runs. Both sides ask here before they begin.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django_jobs import clock
from django_jobs.domain.states import Alone

WISH_LASTS = 5.0  # seconds; a dispatcher that does not ask again needs no room any more


class Company:
    """The two sides of one child: ``is_busy`` says whether jobs run; ``wake_jobs`` and ``wake_deliveries`` wake them.

    ``makes_room``: whether jobs are held back for a delivery that must be alone. One child of a worker does so, the
    others deliver it only when no job runs there by chance. ``alone`` is what a delivery has without jobs beside it.
    """

    def __init__(self, *, is_busy: Callable[[], bool], wake_jobs: Callable[[], object], makes_room: bool, alone: Alone):
        self.wake_deliveries: Callable[[], object] = lambda: None
        self._is_busy = is_busy
        self._wake_jobs = wake_jobs
        self._makes_room = makes_room
        self._alone = alone
        self._lock = threading.Lock()
        self._claiming = False  # the loop may be about to start jobs
        self._asks_quiet = False  # something that runs there, or waits to run, bears no delivery beside it
        self._quiet_asked_now = False
        self._delivering: Alone | None = None
        self._wished_at = float("-inf")

    @contextmanager
    def delivering(self, *, suspect: bool) -> Iterator[Alone | None]:
        """Deliver inside the block; yields how much company that has, or None when it must not begin now."""
        begun = self._begin(suspect=suspect)
        try:
            yield begun
        finally:
            if begun is not None:
                self._end(begun)

    def _begin(self, *, suspect: bool) -> Alone | None:
        with self._lock:
            if self._asks_quiet:
                return None
            if not suspect:
                self._delivering = Alone.NO
                return Alone.NO
            if self._claiming or self._is_busy():
                self._wished_at = clock.boot_seconds()
                return None
            self._delivering, self._wished_at = self._alone, float("-inf")
            return self._alone

    def _end(self, begun: Alone) -> None:
        with self._lock:
            self._delivering = None
            waits = begun is not Alone.NO or self._asks_quiet
        if waits:
            self._wake_jobs()

    def may_claim(self) -> bool:
        """Say whether the loop may claim jobs now; if so, it calls :meth:`claimed` after it has started them."""
        with self._lock:
            if self._delivering:  # a suspect
                return False
            wished = self._makes_room and clock.boot_seconds() - self._wished_at < WISH_LASTS
            if not wished:
                self._claiming, self._quiet_asked_now = True, False
                return True
        if not self._is_busy():
            self.wake_deliveries()
        return False

    def claimed(self, *, isolated: bool) -> None:
        """Note that the claim is over; ``isolated``: what runs now bears no company."""
        with self._lock:
            self._claiming = False
            before, self._asks_quiet = self._asks_quiet, isolated or self._quiet_asked_now
        if before and not self._asks_quiet:
            self.wake_deliveries()

    def ask_quiet(self) -> bool:
        """Let no delivery begin until a claim ends without asking this; returns whether none is under way."""
        with self._lock:
            self._asks_quiet = self._quiet_asked_now = True
            return self._delivering is None

    def forget_quiet(self) -> None:
        """Take back what this claim asked: what needed it was not there."""
        with self._lock:
            self._quiet_asked_now = False

    def take_quiet(self) -> bool:
        """The same if none is under way; else nothing."""
        with self._lock:
            if self._delivering is not None:
                return False
            self._asks_quiet = self._quiet_asked_now = True
            return True


def nobody_delivers() -> Company:
    """Return the company of jobs in a process without a dispatcher."""
    return Company(is_busy=lambda: False, wake_jobs=lambda: None, makes_room=False, alone=Alone.WORKER)
