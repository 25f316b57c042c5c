"""Which resources may have room, as one child knows it: a claim asks for the jobs of no others."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence

from django_jobs import clock
from django_jobs.store.resources import Lane, Stand, stands, waiting_lanes
from django_jobs.worker.attempt import RunningAttempt

LOOK_EVERY = 1.0  # seconds; what others finish, what a person changes and what is enqueued is known so late
NEVER = float("inf")


class Lanes:
    """The lanes in which jobs wait for a resource, and when each resource may have room.

    A resource without room is not asked for again before time alone makes room, a job of this child that used it has
    ended, or the next look. So jobs behind a full resource cost a claim nothing.
    """

    def __init__(self, *, using: str) -> None:
        self._using = using
        self._waiting: list[Lane] = []
        self._opens: dict[str, float] = {}  # by resource, on the boot clock
        self._looked_at = float("-inf")
        self._running: dict[uuid.UUID, str] = {}

    def open(self, queues: Sequence[str], *, paused: Collection[str]) -> list[Lane]:
        """Return the lanes of these queues whose resources may have room now."""
        now = clock.boot_seconds()
        if now - self._looked_at >= LOOK_EVERY:
            self._look(queues, now)
        served = set(queues)
        return [
            lane
            for lane in self._waiting
            if lane.queue_name in served and lane.resource not in paused and self._opens[lane.resource] <= now
        ]

    def forget(self) -> None:
        """Look anew before the next claim: something was seen that may wait for a resource."""
        self._looked_at = float("-inf")

    def _look(self, queues: Sequence[str], now: float) -> None:
        self._waiting = waiting_lanes(queues, using=self._using)
        seen = stands({lane.resource for lane in self._waiting}, using=self._using)
        self._opens = {name: _opens(stand, now) for name, stand in seen.items()}
        self._looked_at = now

    def note_running(self, running: Iterable[RunningAttempt]) -> None:
        """Know what this child runs: where a job that used a resource has ended, there may be room."""
        before = self._running
        self._running = {
            attempt.attempt_id: attempt.claimed.resource for attempt in running if attempt.claimed.resource
        }
        for ended in before.keys() - self._running.keys():
            if before[ended] in self._opens:
                self._opens[before[ended]] = clock.boot_seconds()

    def note_claim(self, asked: Sequence[Lane]) -> list[Lane]:
        """Know that a claim had room for more than it found in these lanes.

        Returns:
            Those whose resources have room all the same: nothing is left there, or nothing that this child can run.
        """
        now = clock.boot_seconds()
        seen = stands({lane.resource for lane in asked}, using=self._using)
        for name, stand in seen.items():
            opens = _opens(stand, now)
            self._opens[name] = NEVER if opens <= now else opens
        return [lane for lane in asked if seen[lane.resource].room != 0]

    def reopen(self, lanes: Iterable[Lane]) -> None:
        """Ask for these again: something was moved out of the way there."""
        now = clock.boot_seconds()
        self._opens |= {lane.resource: now for lane in lanes}

    def seconds_to_next(self) -> float:
        """Return in how many seconds time alone makes room for jobs that wait; infinite if it does not."""
        now = clock.boot_seconds()
        names = {lane.resource for lane in self._waiting}
        return min((self._opens[name] - now for name in names if self._opens[name] > now), default=NEVER)


def _opens(stand: Stand, now: float) -> float:
    return NEVER if stand.opens_in is None else now + stand.opens_in
