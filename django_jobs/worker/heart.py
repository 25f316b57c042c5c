"""The supervisor's database work, in a thread of its own: a database that hangs must not hide a dead child."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import connections, reset_queries

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.domain.lease import GAP, HEARTBEAT, may_judge
from django_jobs.domain.states import LossCause
from django_jobs.outbox.losses import take_back_of_dead, take_back_of_silent
from django_jobs.store import expire, held_by
from django_jobs.store.resources import announce_resources
from django_jobs.store.workers import (
    WorkerRecord,
    beat,
    is_asked_to_drain,
    note_stopped,
    note_stopping,
    register,
)
from django_jobs.worker.alerts import tell_of_expired
from django_jobs.worker.chores import EVERY as CHORES_EVERY
from django_jobs.worker.chores import Chores
from django_jobs.worker.connection import bounded
from django_jobs.worker.failures import failures
from django_jobs.worker.outage import outage
from django_jobs.worker.overdue import fail_overdue, ran_past_by
from django_jobs.worker.rescue import PATIENCE, how_lost, take_back
from django_jobs.worker.sweep import Sweep

EXPIRE_EVERY = 30.0  # seconds between two looks for jobs whose usefulness has passed
EXPIRE_AT_ONCE = 500
TRY_AGAIN = 1.0  # seconds after a failed beat, at most: workers that failed together do not come back together
TICK = 0.5  # seconds
END_OF_CHILD = "its worker ended the process on purpose"


def again_after() -> float:
    """Return how many seconds after a failed beat the next one is tried."""
    return TRY_AGAIN * (0.5 + random.random() / 2)  # noqa: S311  spreads load, guards nothing


@dataclass(slots=True)
class Death:
    """A child whose jobs have to be taken back."""

    child: int
    status: int
    on_purpose: bool = False
    at: float = field(default_factory=clock.boot_seconds)
    tries: int = 0
    not_before: float = 0.0


class Heart:
    """Says that the worker lives, takes back what dead children held, and judges workers that went silent."""

    def __init__(self, record: WorkerRecord, *, using: str) -> None:
        rules = get_settings()
        self.registered = threading.Event()
        self.asked_to_drain = False  # by a person, through the worker's row
        self.beat_at: float | None = None  # when the last heartbeat was written
        self.turned_at = clock.boot_seconds()  # when this thread last went on
        self._record = record
        self._using = using
        self._heartbeat = rules.heartbeat
        self._tick = rules.reaper_tick.total_seconds()
        self._gap = rules.heartbeat * (GAP / HEARTBEAT)
        self._beats: list[float] = []
        self._due = {"beat": 0.0, "reap": 0.0, "expire": 0.0, "chores": 0.0}
        self._chores = Chores(record.worker_id, using=using)
        self._reported: queue.SimpleQueue[Death] = queue.SimpleQueue()
        self._deaths: list[Death] = []  # of this thread alone; the supervisor reports through the queue
        self._sweep = Sweep(using)
        self._wake = threading.Event()
        self._stopping = False
        self._stopping_noted = False
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="django_jobs-heart", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread goes on; without it this worker would be taken for dead while its children run jobs."""
        return self._thread.is_alive()

    def report_death(self, *, child: int, status: int, on_purpose: bool = False) -> None:
        """Have the jobs of a reaped child taken back; ``on_purpose``: this worker had ended it, not one of its jobs."""
        self._reported.put(Death(child, status, on_purpose))
        self._wake.set()

    def note_stopping(self) -> None:
        """Have it recorded that the worker takes no more jobs."""
        self._stopping = True
        self._chores.stop()
        self._wake.set()

    def finish(self, *, seconds: float) -> bool:
        """Take back what is left, sign off, and end; False when the database did not answer in time."""
        self._ending = True
        self._chores.stop()
        self._wake.set()
        self._thread.join(timeout=seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not (self._ending and self._is_signed_off()):
                try:
                    self._turn()
                except Exception as error:  # noqa: BLE001  without a heart it would be judged dead
                    failures.note("heart", error, using=self._using)
                self._wake.wait(TICK)
                self._wake.clear()
        finally:
            connections.close_all()

    def _turn(self) -> None:
        self.turned_at = clock.boot_seconds()
        self._take_back_of_the_dead()
        if self._stopping and not self._stopping_noted:
            self._stopping_noted = self._try(self._note_stopping)
        self._beat()
        self._reap()
        if self.registered.is_set() and self._is_due("expire", EXPIRE_EVERY):
            self._try(self._expire)
        if self.registered.is_set() and not self._stopping and self._is_due("chores", CHORES_EVERY):
            self._try(self._look_at_chores)

    def _look_at_chores(self) -> bool:
        with bounded(self._using, PATIENCE):
            return self._chores.look()

    def _is_signed_off(self) -> bool:
        if not self.registered.is_set():
            return True
        return not self._deaths and self._reported.empty() and self._try(self._note_stopped)

    def _is_due(self, what: str, every: float) -> bool:
        now = clock.boot_seconds()
        if now < self._due[what]:
            return False
        self._due[what] = now + every
        return True

    def _beat(self) -> None:
        if not self._is_due("beat", self._heartbeat.total_seconds()):
            return
        if self._try(self._beat_or_register):
            self.beat_at = clock.boot_seconds()
            self._beats = [*self._beats[-9:], self.beat_at]
            self.registered.set()
        else:
            self._due["beat"] = clock.boot_seconds() + again_after()

    def _beat_or_register(self) -> bool:
        with bounded(self._using, PATIENCE):
            if not (self.registered.is_set() and beat(self._record.worker_id, using=self._using)):
                register(self._record, using=self._using)
                announce_resources(using=self._using)
            self.asked_to_drain = self.asked_to_drain or is_asked_to_drain(self._record.worker_id, using=self._using)
        return True

    def _note_stopping(self) -> bool:
        with bounded(self._using, PATIENCE):
            note_stopping(self._record.worker_id, using=self._using)
        return True

    def _note_stopped(self) -> bool:
        with bounded(self._using, PATIENCE):
            note_stopped(self._record.worker_id, using=self._using)
        return True

    def _expire(self) -> bool:
        with bounded(self._using, PATIENCE):
            found = expire(using=self._using, judge=self._record.worker_id, limit=EXPIRE_AT_ONCE)
            if len(found) >= EXPIRE_AT_ONCE:
                self._due["expire"] = 0.0  # more is late
            tell_of_expired(found, using=self._using)
        return True

    def _take_back_of_the_dead(self) -> None:
        while not self._reported.empty():
            self._deaths.append(self._reported.get())
        for death in list(self._deaths):
            now = clock.boot_seconds()
            if now < death.not_before:
                continue
            death.tries += 1
            death.not_before = now + min(0.05 * 2**death.tries, 5.0)
            if self._try(lambda death=death: self._take_back(death), loop="deaths"):  # type: ignore[misc]
                self._deaths = [other for other in self._deaths if other is not death]
            else:
                self._wake.set()

    def _take_back(self, death: Death) -> bool:
        with bounded(self._using, PATIENCE):
            found = held_by(
                worker_id=self._record.worker_id, child=death.child, using=self._using, on_purpose=death.on_purpose
            )
        since = clock.boot_seconds() - death.at
        overdue = [item for item in found if death.on_purpose and ran_past_by(item, since=since)]
        fail_overdue(overdue)
        left = take_back((item for item in found if item not in overdue), exit_status=death.status)
        return self._take_back_deliveries(death) and not left

    def _take_back_deliveries(self, death: Death) -> bool:
        with bounded(self._using, PATIENCE):
            return take_back_of_dead(
                worker_id=self._record.worker_id,
                child=death.child,
                how=END_OF_CHILD if death.on_purpose else how_lost(LossCause.EXIT, death.status),
                on_purpose=death.on_purpose,
                using=self._using,
            )

    def _reap(self) -> None:
        if not self._is_due("reap", self._tick):
            return
        if self._may_go_on():
            self._try(self._judge)

    def _may_go_on(self) -> bool:
        """Whether this worker may judge others now; its own next beat comes before the next judgement."""
        now = self.turned_at = clock.boot_seconds()
        return now < self._due["beat"] and may_judge(self._beats, now, heartbeat=self._heartbeat, gap=self._gap)

    def _judge(self) -> bool:
        if not self._sweep.go_on(self._may_go_on):
            self._due["reap"] = 0.0  # the rest follows right after the next beat
        elif self._may_go_on():
            with bounded(self._using, PATIENCE):
                take_back_of_silent(how=how_lost(LossCause.SILENT, None), using=self._using)
        return True

    def _try(self, action: Callable[[], bool], *, loop: str = "") -> bool:
        """Do some database work; False when it must be repeated: nothing that happens here may end the worker."""
        self.turned_at = clock.boot_seconds()
        try:
            done = action()
        except Exception as error:  # noqa: BLE001  whatever it is, the loop must go on
            failures.note(loop or action.__name__.strip("_"), error, using=self._using)
            return False
        outage.answered()
        reset_queries()  # with DEBUG, Django keeps them
        return done
