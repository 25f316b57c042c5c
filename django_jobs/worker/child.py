"""A child process: claims, runs and watches attempts. Start with ``python -m django_jobs.worker.child CONFIG``."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import django
from django.db import connections, reset_queries

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.domain.states import Alone
from django_jobs.worker.config import Exit, WorkerConfig
from django_jobs.worker.link import ChildEnd, Order, Word
from django_jobs.worker.room import Seat
from django_jobs.worker.stacks import show_on_request
from django_jobs.worker.wake import Wake
from django_jobs.worker.watch import watch

if TYPE_CHECKING:
    from django_jobs.worker.attempt import RunningAttempt

logger = logging.getLogger("django_jobs.worker")

T = TypeVar("T")

CALL_LIMIT = 10.0  # seconds that one look for jobs may take
LOOK_AT_RUNNING = 0.5  # seconds between two looks for attempts that ran past their lease


class Child:
    """The loop of one child. Orders only set a number and wake it."""

    def __init__(self, config: WorkerConfig, tell: Callable[[Word, int], bool] = lambda *_: True) -> None:
        from django_jobs.outbox.dispatcher import longest_delivering
        from django_jobs.worker.cancels import CancelEar
        from django_jobs.worker.claiming import Claimer
        from django_jobs.worker.company import Company
        from django_jobs.worker.dispatch import Dispatching
        from django_jobs.worker.execute import abandon, execute
        from django_jobs.worker.idle import Idle
        from django_jobs.worker.pool import Pool
        from django_jobs.worker.shutdown import Ending
        from django_jobs.worker.wear import Wear

        self.config = config
        self.wake = Wake()
        self.stops = 0
        self.report: Callable[[Word], None] = lambda _: None  # tells the supervisor how each round went
        self._turned = Word.BUSY
        self.seat = Seat(tell)
        self.pool = Pool(config.threads, execute, abandon, self.wake.set, coroutines=config.coroutines)
        self.company = Company(
            is_busy=lambda: bool(self.pool.running),
            wake_jobs=self.wake.set,
            makes_room=config.slot == 0,
            alone=Alone.WORKER if config.processes == 1 else Alone.CHILD,
            longest=longest_delivering,
        )
        self.claimer = Claimer(config, self.seat, self.company)
        self.cancels = CancelEar(self.pool, using=config.database)
        self.ending = Ending(
            self.pool,
            self.wake,
            grace=config.grace,
            announce=lambda: tell(Word.ENDING, 0),
            listen=self.cancels.listen,
        )
        self.idle = Idle(config, self.claimer, self.wake)
        self.dispatching = Dispatching(config, self.company, hears=lambda: self.idle.hears)
        self.idle.on_events(self.dispatching.note_events)
        self.wear = Wear(config)
        self._isolated = False
        self._error_since = 0.0

    def stop(self, order: Order) -> None:
        """Drain, or end at once."""
        watch.hurry()
        self.stops = max(self.stops, 1 if order is Order.DRAIN else 2)
        self.wake.set()

    def follow(self, order: Order, number: int) -> None:
        """Take an order of the supervisor."""
        if order in {Order.DRAIN, Order.STOP_NOW}:
            self.stop(order)
        else:
            self.seat.follow(order, number)
            self.wake.set()

    def run(self) -> int:
        """Serve until stopped; returns the exit code."""
        self.dispatching.start()
        look_first = False  # after a sleep that nobody ended, one cheap read tells whether a claim is worth its cost
        while not self.stops and not self.ending.recycling:
            if why := self.wear.reason():
                self.ending.retire(why)
                break
            claimed = self._turn(look_first=look_first)
            self.report(self._turned)
            look_first = False
            if claimed is None:
                self.wake.wait(self._pause())
            elif claimed:
                self.idle.note_news()
            elif self._is_drained():
                break
            else:
                look_first = not self._rest()
        if not self.pool.running:  # else the end of this process does: what runs may have been promised the worker
            self.seat.give_back()
        self.dispatching.begin_stop()
        code = self.ending.drain(self._stops_while_draining)
        self.dispatching.stop(seconds=0.0 if self.stops > 1 else get_settings().max_call.total_seconds())
        self._guarded(self.claimer.settle_doubtful)
        self.pool.stop()
        connections.close_all()
        return code

    def _stops_while_draining(self) -> int:
        self.report(Word.BUSY)
        return self.stops

    def _rest(self) -> bool:
        """Sleep until woken or until it is time to look again; returns whether somebody woke this child."""
        if self.pool.free and self._guarded(self.idle.asks):
            return False
        seconds = self.idle.seconds()
        woken = self.wake.wait(min(seconds, LOOK_AT_RUNNING) if self.pool.running else seconds)
        if woken:
            self.idle.note_news()
        return woken

    def _is_drained(self) -> bool:
        if not self.config.drain or self.pool.running:
            return False
        return self._guarded(self._is_nothing_left) is True

    def _is_nothing_left(self) -> bool:
        return self.dispatching.is_nothing_left() and self.claimer.is_nothing_left()

    def _turn(self, *, look_first: bool = False) -> int | None:
        """Do one round; returns how many were claimed, or None when the database did not answer."""
        self._turned = Word.BUSY
        self._end_overdue()
        if not self._error_since:  # else the database is away, and the claim finds out when it is back
            self.cancels.listen()
        self.pool.replace_dead()
        self.dispatching.replace_dead()
        self.dispatching.tell_if_stuck()
        running = self.pool.running
        self.claimer.lanes.note_running(running)
        self._isolated = self._isolated and bool(running)
        free = self.pool.free
        if self._isolated or (free == 0 and self.seat.is_free) or self.ending.recycling:
            return 0
        if look_first and self.seat.is_free:  # else an order of the supervisor waits for this round
            found = self._guarded(self.idle.may_find)
            if not found:
                return None if found is None else 0
        if not self.company.may_claim():
            return 0
        try:
            claimed: list[RunningAttempt] | None = self._guarded(lambda: self.claimer.take(free, len(running)))
            for attempt in claimed or []:
                self._isolated = self._isolated or bool(attempt.claimed.alone)
                self.pool.submit(attempt)
                self.wear.note_job()
        finally:
            self.company.claimed(isolated=self._isolated)
        return None if claimed is None else len(claimed)

    def _end_overdue(self) -> None:
        from django_jobs.worker.failures import failures

        try:
            self.ending.end_overdue()
        except Exception as error:  # noqa: BLE001  the loop that watches leases must go on
            failures.note("overdue", error, using=self.config.database)

    def _guarded(self, action: Callable[[], T]) -> T | None:
        """Do some database work; None when it failed: running attempts must not lose their process over it."""
        from django_jobs.worker.failures import failures
        from django_jobs.worker.outage import outage

        try:
            with watch.over(self.config.database, CALL_LIMIT):
                result = action()
        except Exception as error:  # noqa: BLE001  whatever it is, the loop must go on
            failures.note("claim", error, using=self.config.database)
            self._error_since = self._error_since or clock.boot_seconds()
            self._turned = Word.FAILED
            return None
        self._turned, self._error_since = Word.LOOKED, 0.0
        outage.answered()
        reset_queries()  # with DEBUG, Django keeps them
        return result

    def _pause(self) -> float:
        out_for = clock.boot_seconds() - self._error_since if self._error_since else 0.0
        return min(0.1 + out_for / 4, 3.0) * (0.5 + random.random() / 2)  # noqa: S311


def _follow_orders(link: ChildEnd, child: Child) -> None:
    while (order := link.next_order()) is not None:
        child.follow(*order)
    child.stop(Order.DRAIN)  # the supervisor died: nobody reports for this process now


def _load(config: WorkerConfig, link: ChildEnd) -> Child:
    django.setup()
    from django_jobs.faults.arming import arm_from_environment
    from django_jobs.worker.connection import keep_connections

    arm_from_environment(supervisor=os.getppid())
    keep_connections(config.database)
    return Child(config, link.tell)


def main(argument: str) -> int:
    """Set up Django and serve."""
    config = WorkerConfig.from_json(argument)
    link = ChildEnd(config.link)
    for number in (signal.SIGINT, signal.SIGHUP):  # the supervisor decides; a terminal sends them to the whole group
        signal.signal(number, signal.SIG_IGN)
    show_on_request()
    early: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: early.append(1))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what a killed handler printed is kept
    try:
        child = _load(config, link)
    except BaseException:  # noqa: BLE001  also sys.exit(): whatever kept the code from loading is judged by the supervisor
        traceback.print_exc()
        return Exit.NOT_STARTED
    child.report = link.turned
    signal.signal(signal.SIGTERM, lambda *_: child.stop(Order.DRAIN))
    if early:
        child.stop(Order.DRAIN)
    threading.Thread(target=_follow_orders, args=(link, child), name="django_jobs-orders", daemon=True).start()
    link.ready()
    return child.run()


if __name__ == "__main__":
    code = main(sys.argv[1])
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a handler that cannot be ended must not keep the process
