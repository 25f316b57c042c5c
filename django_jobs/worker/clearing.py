"""Keeping rows that cannot run out of the way of claims: pauses, kinds that nobody knows, kinds of other workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from django_jobs import clock, telemetry
from django_jobs.domain.lanes import kind_in
from django_jobs.domain.lines import one_line
from django_jobs.store import defer, expire
from django_jobs.store.claims import Place, before_all
from django_jobs.store.limits import limits_of, with_room
from django_jobs.store.notify import wake
from django_jobs.store.pauses import Paused, paused
from django_jobs.store.resources import Lane
from django_jobs.store.waiting import Seen, look_at, move_due, set_aside, take_up, until_due
from django_jobs.store.workers import announced

logger = logging.getLogger("django_jobs.worker")

EVERY = 1.0  # seconds between two looks at pauses, at due jobs, and at the heads of queues
TAKE_UP_EVERY = 5.0  # seconds between two looks at what is set aside, if no pause has changed
FORGET_PLACES_EVERY = 30.0  # seconds; until then a job that sorts in front of a place may be overlooked
SLICE = 0.25  # seconds that one round spends on moving rows before it claims
BATCH = 500
LOOK = 2000  # rows of one look, see queries/head.sql
CLAIM_LOOK = 200  # rows of one look of a claim, see claim.sql
LOOKS = 10  # looks of one round that walk over jobs which this worker cannot run
TELL_EVERY = 60.0


class Clearing:
    """Moves rows for one child, in slices, and knows behind which places of its queues it should look."""

    def __init__(self, mine: Callable[[], Collection[str]], *, using: str) -> None:
        self.paused = Paused()
        self.beyond: dict[tuple[str, str], Place] = {}  # by queue and lane
        self.next_due = float("inf")  # on the boot clock
        self._mine = mine
        self._using = using
        self._announced: frozenset[str] = frozenset()
        self._done: dict[str, float] = {}

    def _is_due(self, what: str, every: float) -> bool:
        now = clock.boot_seconds()
        if now - self._done.get(what, float("-inf")) < every:
            return False
        self._done[what] = now
        return True

    def read_pauses(self) -> None:
        """Know what is paused, at most a second late."""
        if not self._is_due("pauses", EVERY):
            return
        before, self.paused = self.paused, paused(using=self._using)
        if self.paused != before:
            self._done.pop("take_up", None)
            self._done.pop("clear", None)

    def runnable(self) -> set[str]:
        """Return the kinds that a live worker can run and that are not paused."""
        if self._is_due("announced", EVERY):
            self._announced = frozenset(announced(using=self._using))
        return {kind for kind in self._announced if self.paused.allows(kind)} | self._open()

    def _open(self) -> set[str]:
        return {kind for kind in self._mine() if self.paused.allows(kind)}

    def promote(self, queues: Sequence[str]) -> None:
        """Move what has become due to where claims find it, and take up again what is set aside and may run now."""
        if self._is_due("places", FORGET_PLACES_EVERY):  # here: a child whose claims are full never looks at heads
            self.beyond.clear()
        if clock.boot_seconds() >= self.next_due or self._is_due("promote", EVERY):
            self._promote(queues)
        if self._is_due("take_up", TAKE_UP_EVERY):
            self._take_up(queues)

    def note_quiet(self, wait: float | None) -> None:
        """Know from somebody else's look that nothing is due before so many seconds; None: nothing waits at all."""
        now = clock.boot_seconds()
        self._done |= {"promote": now, "clear": now}
        self.next_due = now + (float("inf") if wait is None else wait)

    def _promote(self, queues: Sequence[str]) -> None:
        end = clock.boot_seconds() + SLICE
        while (wait := until_due(queues, using=self._using)) is not None and wait.total_seconds() <= 0:
            ready, moved = move_due(queues, runnable=self.runnable(), using=self._using, limit=BATCH)
            if ready > 1:  # the first one is for this child
                wake(queues, using=self._using)
            if not moved:  # somebody holds what is due: looking again at once would only load the server
                self.next_due = clock.boot_seconds() + EVERY
                return
            if clock.boot_seconds() >= end:
                break
        self.next_due = clock.boot_seconds() + (float("inf") if wait is None else max(wait.total_seconds(), 0.01))

    def _take_up(self, queues: Sequence[str]) -> None:
        lanes = set_aside(queues, using=self._using)
        if not lanes:
            return
        runnable = self.runnable()
        lanes = [(queue, lane) for queue, lane in lanes if kind_in(lane) in runnable]
        end = clock.boot_seconds() + SLICE
        while take_up(lanes, runnable=runnable, using=self._using, limit=BATCH) >= BATCH:
            if clock.boot_seconds() >= end:
                self._done.pop("take_up", None)  # the rest in the next round
                break

    def clear(self, queues: Sequence[str], lanes: Sequence[Lane] = ()) -> bool:
        """Look why a claim found less than there was room for; returns whether another one may find more."""
        if not self._is_due("clear", EVERY):
            return False
        queues = with_room(queues, limits_of(queues), using=self._using)  # a full queue tells enough
        if not queues:
            return False
        lanes = [lane for lane in lanes if lane.queue_name in set(queues)]
        seen = self._look_at_heads(queues, lanes)
        strange = frozenset[str]().union(*(look.strange for look in seen))
        moved = bool(strange - self.runnable()) and self._set_aside(queues, lanes)
        if any(look.late for look in seen):
            moved = bool(expire(using=self._using, limit=LOOK)) or moved
        if moved:
            self._done.pop("clear", None)  # perhaps there is more
            seen = self._look_at_heads(queues, lanes)
        for place in set(self.beyond) - {(look.queue_name, look.lane) for look in seen if look.look is not None}:
            del self.beyond[place]  # the lane is empty
        walked = [self._walk(look) for look in seen if look.look is not None]
        return any(walked) or moved

    def _look_at_heads(self, queues: Sequence[str], lanes: Sequence[Lane]) -> list[Seen]:
        places = [
            *(before_all(name) for name in queues),
            *(before_all(lane.queue_name, lane=lane.resource) for lane in lanes),
        ]
        return look_at(places, mine=self._open(), using=self._using)

    def _set_aside(self, queues: Sequence[str], lanes: Sequence[Lane]) -> bool:
        runnable, end, moved = self.runnable(), clock.boot_seconds() + SLICE, 0
        while found := defer(queues, runnable=runnable, using=self._using, lanes=lanes):
            moved += found
            if clock.boot_seconds() >= end:
                break
        return moved > 0

    def _walk(self, head: Seen) -> bool:
        """Go on behind jobs that this worker cannot run: they are left to others, or not set aside yet."""
        at = (head.queue_name, head.lane)
        if head.first_mine is not None and head.first_mine <= CLAIM_LOOK:
            self.beyond.pop(at, None)
            return False
        look: Seen | None = head
        if at in self.beyond:
            look = self._look_behind(self.beyond[at])
        for _ in range(LOOKS):
            if look is None or (look.first_mine is None and look.many < LOOK):
                self.beyond.pop(at, None)  # the end of the lane: nothing for this worker
                return False
            if look.last is not None:
                self.beyond[at] = look.last
            self._tell(head.queue_name, head)
            if look.first_mine is not None:
                return True
            look = self._look_behind(self.beyond[at])
        return False

    def _look_behind(self, place: Place) -> Seen | None:
        found = look_at([place], mine=self._open(), using=self._using)
        return next((look for look in found if look.look == 0), None)

    def _tell(self, queue: str, head: Seen) -> None:
        if self._is_due(f"tell {queue}", TELL_EVERY):
            kinds = ", ".join(sorted(head.strange)[:5])
            telemetry.emit("claim.foreign", queue_name=queue, kinds=sorted(head.strange))
            logger.warning(
                "The head of queue %s is full of jobs that this worker cannot run (%s); looking behind them",
                queue,
                one_line(kinds),
            )
