"""The parent: starts children, sees their deaths, says that the worker lives, and judges workers that went silent."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import connections

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.lease import GAP, HEARTBEAT, may_judge
from django_jobs.store import abandoned, expire, held_by
from django_jobs.store.workers import WorkerRecord, beat, note_stopped, note_stopping, register
from django_jobs.worker.child import RETRY_LOG_EVERY, Exit
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.connection import LOST, drop, keep_connections
from django_jobs.worker.rescue import take_back
from django_jobs.worker.wake import Wake

logger = logging.getLogger("django_jobs.worker")

EXPIRE_EVERY = 30.0  # seconds between two looks for jobs whose usefulness has passed
TICK = 0.25  # seconds; a child's death wakes the loop at once
CALM = 5.0  # a child that lived this long is replaced at once, a shorter-lived one after a growing pause


@dataclass(slots=True)
class Slot:
    """A place for one child."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    child: int = 0
    started_at: float = 0.0
    start_not_before: float = 0.0
    quick_deaths: int = 0
    stops_sent: int = 0
    done: bool = False


@dataclass(slots=True)
class Death:
    """A child whose jobs have to be taken back."""

    child: int
    status: int
    tries: int = 0
    not_before: float = field(default=0.0)


class Supervisor:
    """One worker. Single-threaded; its database work is short, and an outage of the database never ends it."""

    def __init__(self, config: WorkerConfig, *, host: str) -> None:
        rules = get_settings()
        self.config = config
        self.host = host
        self.wake = Wake()
        self.slots = [Slot(number) for number in range(config.processes)]
        self.deaths: list[Death] = []
        self.beats: list[float] = []
        self.stops = 0
        self.worst = int(Exit.CLEAN)
        self._children = 0
        self._registered = False
        self._stopping_noted = False
        self._heartbeat = rules.heartbeat.total_seconds()
        self._tick = rules.reaper_tick.total_seconds()
        self._due = {"beat": 0.0, "reap": 0.0, "expire": 0.0}
        self._logged_at = float("-inf")
        self._life_read, self._life_write = os.pipe()

    def run(self) -> int:
        """Serve until stopped or drained; returns the exit code."""
        keep_connections(self.config.database)
        before = self._install_signals()
        try:
            while not self._is_over():
                self._turn()
                self.wake.wait(TICK)
            self._turn()
            self._attempt(lambda: note_stopped(self.config.uuid, using=self.config.database))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._life_write)
            os.close(self._life_read)
            connections.close_all()
        return self.worst

    def request_stop(self) -> None:
        """Let children drain; a second call ends them at once."""
        self.stops += 1
        self.wake.set()

    def _install_signals(self) -> dict[int, object]:
        handlers: dict[int, Callable[..., object]] = {
            signal.SIGTERM: lambda *_: self.request_stop(),
            signal.SIGINT: lambda *_: self.request_stop(),
            signal.SIGCHLD: lambda *_: self.wake.set(),
        }
        return {number: signal.signal(number, handler) for number, handler in handlers.items()}

    def _is_over(self) -> bool:
        return all(slot.process is None and (slot.done or self.stops) for slot in self.slots)

    def _turn(self) -> None:
        self._see_deaths()
        self._take_back_of_the_dead()
        self._pass_on_stops()
        self._start_children()
        self._beat()
        self._reap()
        self._expire()

    # children

    def _see_deaths(self) -> None:
        for slot in self.slots:
            if slot.process is None:
                continue
            status = slot.process.poll()
            if status is None:
                continue
            slot.process = None
            self.deaths.append(Death(child=slot.child, status=status))
            self._after_exit(slot, status)

    def _after_exit(self, slot: Slot, status: int) -> None:
        if status == Exit.CLEAN and (self.config.drain or self.stops):
            slot.done = True
            return
        if status == Exit.GRACE_EXCEEDED:
            self.worst = int(Exit.GRACE_EXCEEDED)
            slot.done = bool(self.stops)
            return
        now = clock.boot_seconds()
        logger.warning("Child %s of worker %s ended with status %s", slot.child, self.config.name, status)
        slot.quick_deaths = slot.quick_deaths + 1 if now - slot.started_at < CALM else 0
        slot.start_not_before = now + (min(2.0 ** (slot.quick_deaths - 4), 10.0) if slot.quick_deaths > 3 else 0.0)

    def _take_back_of_the_dead(self) -> None:
        for death in list(self.deaths):
            now = clock.boot_seconds()
            if now < death.not_before:
                continue
            death.tries += 1
            death.not_before = now + min(0.05 * 2**death.tries, 5.0)
            if self._attempt(lambda death=death: self._take_back(death)):  # type: ignore[misc]
                self.deaths.remove(death)

    def _take_back(self, death: Death) -> bool:
        found = held_by(worker_id=self.config.uuid, child=death.child, using=self.config.database)
        return not take_back(found, exit_status=death.status)

    def _pass_on_stops(self) -> None:
        if not self.stops:
            return
        for slot in self.slots:
            while slot.process is not None and slot.stops_sent < min(self.stops, 2):
                slot.stops_sent += 1
                slot.process.send_signal(signal.SIGTERM)
        if not self._stopping_noted:
            self._stopping_noted = self._attempt(
                lambda: note_stopping(self.config.uuid, using=self.config.database) or True
            )

    def _start_children(self) -> None:
        now = clock.boot_seconds()
        if self.stops or not self._registered:
            return
        for slot in self.slots:
            if slot.process is None and not slot.done and now >= slot.start_not_before:
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        self._children += 1
        slot.child, slot.started_at = self._children, clock.boot_seconds()
        slot.stops_sent = 0
        config = self.config.for_child(child=slot.child, slot=slot.number, parent_pipe=self._life_read)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        slot.process = subprocess.Popen(
            [sys.executable, "-m", "django_jobs.worker.child", config.to_json()],
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[self._life_read],
            stdin=subprocess.DEVNULL,
        )

    # heartbeat and judgement

    def _is_due(self, what: str, every: float) -> bool:
        now = clock.boot_seconds()
        if now < self._due[what]:
            return False
        self._due[what] = now + every
        return True

    def _beat(self) -> None:
        if not self._is_due("beat", self._heartbeat if self._registered else 0.2):
            return
        if self._attempt(self._beat_or_register):
            self._registered = True
            self.beats = [*self.beats[-9:], clock.boot_seconds()]

    def _beat_or_register(self) -> bool:
        if self._registered and beat(self.config.uuid, using=self.config.database):
            return True
        register(self._record(), using=self.config.database)
        return True

    def _record(self) -> WorkerRecord:
        return WorkerRecord(
            worker_id=self.config.uuid,
            name=self.config.name,
            host=self.host,
            pid=os.getpid(),
            queues=self.config.queues,
            job_types=[name for name, _ in registry.definitions()],
            threads=self.config.threads,
            processes=self.config.processes,
            code_version=get_settings().code_version,
        )

    def _reap(self) -> None:
        if not self._is_due("reap", self._tick):
            return
        if not may_judge(self.beats, clock.boot_seconds(), heartbeat=get_settings().heartbeat, gap=self._gap()):
            return
        self._attempt(lambda: take_back(abandoned(using=self.config.database)) is not None)

    def _gap(self):  # type: ignore[no-untyped-def]
        return get_settings().heartbeat * (GAP / HEARTBEAT)

    def _expire(self) -> None:
        if self._registered and self._is_due("expire", EXPIRE_EVERY):
            self._attempt(lambda: expire(using=self.config.database) is not None)

    def _attempt(self, action: Callable[[], object]) -> bool:
        """Do some database work; False when it must be repeated. An outage is logged at most every ten seconds."""
        try:
            return bool(action())
        except LOST as error:
            drop(self.config.database)
            now = clock.boot_seconds()
            if now - self._logged_at >= RETRY_LOG_EVERY:
                self._logged_at = now
                logger.warning("The database does not answer (%s); trying again until it does", error)
            return False
