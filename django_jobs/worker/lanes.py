"""Which resources may have room, as one child knows it: a claim asks for the jobs of no others."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence

from django_jobs import clock
from django_jobs.store.resources import Lane, Stand, stands, waiting_lanes
from django_jobs.store.waiting import known_queues
from django_jobs.worker.attempt import RunningAttempt

LOOK_EVERY = 1.0  # seconds; what others finish, what a person changes and what is enqueued is known so late
LEFT_FOR = 1.5  # seconds; longer than the time between two looks
LEAVE_EVERY = 4  # ends; where others wait for the same resource, one of so many places is left to them
NEVER = float("inf")


class Lanes:
    """The lanes in which jobs wait for a resource, and when each resource may have room.

    A resource without room is not asked for again before time alone makes room, a job of this child that used it has
    ended, or the next look. So jobs behind a full resource cost a claim nothing.
    """

    def __init__(self, *, using: str, serves_all: bool = True) -> None:
        self._using = using
        self._serves_all = serves_all
        self._waiting: list[Lane] = []
        self._elsewhere: frozenset[str] = frozenset()  # resources for which jobs of queues wait that others serve
        self._ends = 0
        self._left: dict[str, float] = {}  # by resource: until when a place is left to others
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
            if lane.queue_name in served and lane.resource not in paused and self._is_open(lane.resource, now)
        ]

    def _is_open(self, name: str, now: float) -> bool:
        return self._opens[name] <= now and self._left.get(name, now) <= now

    def forget(self) -> None:
        """Look anew before the next claim: something was seen that may wait for a resource."""
        self._looked_at = float("-inf")

    def _look(self, queues: Sequence[str], now: float) -> None:
        everywhere = queues if self._serves_all else known_queues(using=self._using)
        found = waiting_lanes(everywhere, using=self._using)
        waiting = [lane for lane in found if lane.queue_name in set(queues)]
        seen = stands({lane.resource for lane in waiting}, using=self._using)
        self._waiting, self._looked_at = waiting, now
        self._opens = {name: _opens(stand, now) for name, stand in seen.items()}
        self._elsewhere = frozenset(lane.resource for lane in found if lane.queue_name not in set(queues))

    def note_running(self, running: Iterable[RunningAttempt]) -> None:
        """Know what this child runs: where a job that used a resource has ended, there may be room."""
        before = self._running
        self._running = {
            attempt.attempt_id: attempt.claimed.resource for attempt in running if attempt.claimed.resource
        }
        for ended in before.keys() - self._running.keys():
            name = before[ended]
            if name not in self._opens:
                continue
            self._ends += 1
            if name in self._elsewhere and self._ends % LEAVE_EVERY == 0:
                self._left[name] = clock.boot_seconds() + LEFT_FOR  # those who serve the other queues find this place
            self._opens[name] = clock.boot_seconds()

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
        opens = [
            max(self._opens[name], self._left.get(name, now)) for name in {lane.resource for lane in self._waiting}
        ]
        return min((at - now for at in opens if at > now), default=NEVER)


def _opens(stand: Stand, now: float) -> float:
    return NEVER if stand.opens_in is None else now + stand.opens_in
