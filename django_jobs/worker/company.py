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
PATIENCE = 30.0  # seconds for which jobs are held back at first; as long again they go on, then it is twice as long
TURN_LASTS = 1.0  # seconds; whose turn it is and who does not come until then has nothing to begin


class Company:
    """The two sides of one child: ``is_busy`` says whether jobs run; ``wake_jobs`` and ``wake_deliveries`` wake them.

    ``makes_room``: whether jobs are held back for a delivery that must be alone. One child of a worker does so, the
    others deliver it only when no job runs there by chance. A job that runs for hours must not keep others from
    starting all that time: the room is given up again, for as long as it was held, and next time held twice as long.
    ``alone`` is what a delivery has without jobs beside it. ``longest`` says how many seconds deliveries last that are
    under way, of suspects or of others; who lasts longer hangs, and is not waited for.
    """

    def __init__(
        self,
        *,
        is_busy: Callable[[], bool],
        wake_jobs: Callable[[], object],
        makes_room: bool,
        alone: Alone,
        longest: Callable[[bool], float],
    ) -> None:
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
        self._stuck_from = float("inf")
        self._wished_at = self._turn_of_jobs_until = self._turn_of_deliveries_until = float("-inf")
        self._isolated = False  # what was claimed last bears no company
        self._refused = False  # a delivery did not begin because of it
        self._longest = longest
        self._held_from, self._patience = float("-inf"), PATIENCE  # since when jobs are held back, and for how long

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
                self._refused = True
                return None
            now = clock.boot_seconds()
            if suspect and now < self._turn_of_jobs_until:
                return None
            if suspect and (self._claiming or self._is_busy()):
                self._wished_at = now
                return None
            if suspect:
                self._wished_at = float("-inf")
                self._stop_holding()
            self._delivering = begun = self._alone if suspect else Alone.NO
            self._stuck_from = now + self._longest(suspect)
            had_its_turn, self._turn_of_deliveries_until = self._turn_of_deliveries_until, float("-inf")
        if had_its_turn > now:
            self._wake_jobs()
        return begun

    def _end(self, begun: Alone) -> None:
        with self._lock:
            self._delivering, self._stuck_from = None, float("inf")
            if begun is not Alone.NO:
                self._turn_of_jobs_until = clock.boot_seconds() + TURN_LASTS
            waits = begun is not Alone.NO or self._asks_quiet
        if waits:
            self._wake_jobs()

    @property
    def is_stuck(self) -> bool:
        """Whether something is under way here that lasts longer than any delivery may: it may never end."""
        return clock.boot_seconds() >= self._stuck_from

    def may_claim(self) -> bool:
        """Say whether the loop may claim jobs now; if so, it calls :meth:`claimed` after it has started them."""
        with self._lock:
            self._turn_of_jobs_until = float("-inf")
            if self._delivering and not self.is_stuck:  # a suspect
                return False
            self._give_deliveries_their_turn()
            if not self._is_held_back():
                self._claiming, self._quiet_asked_now = True, False
                return True
        if not self._is_busy():
            self.wake_deliveries()
        return False

    def _give_deliveries_their_turn(self) -> None:
        """Between two jobs without company: else a row of them would keep every event back until the last one ended."""
        if self._refused and self._isolated and not self._is_busy():
            self._refused = self._isolated = self._asks_quiet = False
            self._turn_of_deliveries_until = clock.boot_seconds() + TURN_LASTS

    def _is_held_back(self) -> bool:
        now = clock.boot_seconds()
        if now < self._turn_of_deliveries_until:
            return True
        if not self._makes_room or now - self._wished_at >= WISH_LASTS:
            self._stop_holding()
            return False
        if self._held_from == float("-inf"):
            self._held_from = now
        if now - self._held_from >= self._patience:
            self._held_from = now + self._patience  # as long as nothing was begun, something may be
            self._patience *= 2
        return now >= self._held_from

    def _stop_holding(self) -> None:
        self._held_from, self._patience = float("-inf"), PATIENCE

    def claimed(self, *, isolated: bool) -> None:
        """Note that the claim is over; ``isolated``: what runs now bears no company."""
        with self._lock:
            self._claiming, self._isolated = False, isolated
            before, self._asks_quiet = self._asks_quiet, isolated or self._quiet_asked_now
            self._refused = self._refused and self._asks_quiet
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
    return Company(
        is_busy=lambda: False, wake_jobs=lambda: None, makes_room=False, alone=Alone.WORKER, longest=lambda _: 0.0
    )
