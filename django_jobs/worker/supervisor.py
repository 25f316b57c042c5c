"""The parent: starts children, sees their deaths, and passes on what it is told. It never waits for a database."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import connections

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.poison import ended_on_purpose
from django_jobs.store.workers import WorkerRecord
from django_jobs.worker.bell import Bell
from django_jobs.worker.config import Exit, WorkerConfig
from django_jobs.worker.connection import keep_connections
from django_jobs.worker.heart import Heart
from django_jobs.worker.link import Order, ParentEnd
from django_jobs.worker.outlet import Outlet
from django_jobs.worker.pulse import Pulse
from django_jobs.worker.room import Room
from django_jobs.worker.shutdown import longest_stop
from django_jobs.worker.stacks import show_no_more, show_on_request
from django_jobs.worker.wake import Wake

if TYPE_CHECKING:
    from django_jobs.worker.listen import Listener

logger = logging.getLogger("django_jobs.worker")

Handler = signal.Handlers | Callable[..., object] | int | None

TICK = 0.25  # seconds; a child's death wakes the loop at once
TICK_RESERVED = 0.02  # seconds; while the worker makes room for one job, its children wait for orders
STARTS = 5  # children that could not load their code, in a row, before any child was ready: the worker gives up
SIGN_OFF = 5.0  # seconds that a stopped worker waits for the database to record that it stopped


@dataclass(slots=True)
class Slot:
    """A place for one child."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    line: ParentEnd | None = None
    bell: Bell | None = None
    child: int = 0
    start_not_before: float = 0.0
    failed_starts: int = 0
    stops_sent: int = 0
    kill_at: float = float("inf")
    killed: bool = False
    done: bool = False


class Supervisor:
    """One worker. A second request to stop ends handlers at once; a child that ignores it is killed."""

    def __init__(self, config: WorkerConfig, *, host: str, outlet: Outlet | None = None) -> None:
        self.config = config
        self.outlet = outlet
        self.wake = Wake()
        self.slots = [Slot(number) for number in range(config.processes)]
        self.stops = 0
        self.worst = int(Exit.CLEAN)
        self.pulse = Pulse(config)
        self._host = host
        self._listener: Listener | None = None
        self._children = 0
        self._rung = 0
        self._was_ready = False
        self._failed_starts = 0
        self._stacks_asked = False
        self.room = Room(self._send, self._living, patience=_longest_runtime())

    def run(self) -> int:
        """Serve until stopped or drained; returns the exit code."""
        keep_connections(self.config.database)
        connections.close_all()
        heart = Heart(self._record(), using=self.config.database)
        before = self._install_signals()
        heart.start()
        if self.outlet is not None:
            self.outlet.start(self.pulse.last)
        try:
            self._listen()
            while not self._is_over():
                self._turn(heart)
                self.wake.wait(TICK_RESERVED if self.room.is_reserved else TICK)
            if not heart.finish(seconds=SIGN_OFF):
                logger.warning("The database did not answer in time, so the end of this worker is not recorded")
            self.pulse.end()
        finally:
            if self._listener is not None:
                self._listener.stop()
            self._restore_signals(before)
            self._kill_all()
            if self.outlet is not None:
                self.outlet.stop()
        return self.worst

    def request_stop(self) -> None:
        """Let children drain; a second call ends them at once."""
        self.stops += 1
        self.wake.set()

    def _listen(self) -> None:
        if self.config.drain or connections[self.config.database].vendor != "postgresql":
            return
        from django_jobs.worker.listen import Listener, wants_to_listen  # psycopg may not be installed

        if wants_to_listen(self.config.database):
            self._listener = Listener(self.config.database, self.config.queues, self._ring, self._ring_for_events)
            self._listener.start()

    def _ring(self) -> None:
        """Wake every child: which of them has a free thread, only they know."""
        for bell in [slot.bell for slot in self.slots]:
            if bell is not None:
                bell.ring()

    def _ring_for_events(self) -> None:
        """Wake the dispatcher of one child, of another one each time; what is one batch is for one of them."""
        bells = [bell for slot in self.slots if (bell := slot.bell) is not None]
        if bells:
            self._rung += 1
            bells[self._rung % len(bells)].ring_for_events()

    def _install_signals(self) -> dict[int, Handler]:
        handlers: dict[int, Callable[..., object]] = {
            signal.SIGTERM: lambda *_: self.request_stop(),
            signal.SIGINT: lambda *_: self.request_stop(),
            signal.SIGHUP: lambda *_: self._hang_up(),
            signal.SIGQUIT: lambda *_: self._have_stacks_shown(),
            signal.SIGCHLD: lambda *_: self.wake.set(),
        }
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup: it is to outlive its terminal
            del handlers[signal.SIGHUP]
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        show_on_request(then_python=True)
        return before

    def _restore_signals(self, before: dict[int, Handler]) -> None:
        show_no_more()
        for number, handler in before.items():
            signal.signal(number, handler)

    def _hang_up(self) -> None:
        """The terminal is gone: drain. Never a second request to stop, since it may come right after the first one."""
        if not self.stops:
            self.request_stop()

    def _have_stacks_shown(self) -> None:
        """Let the next turn pass it on: a child that has just become ready is known after its words were read."""
        self._stacks_asked = True
        self.wake.set()

    def _pass_on_request_for_stacks(self) -> None:
        self._stacks_asked = False
        for slot in self.slots:
            if slot.process is not None and slot.line is not None and slot.line.was_ready:
                slot.process.send_signal(signal.SIGQUIT)

    def _record(self) -> WorkerRecord:
        return WorkerRecord(
            worker_id=self.config.uuid,
            name=self.config.name,
            host=self._host,
            pid=os.getpid(),
            queues=self.config.queues,
            excluded=self.config.excluded,
            job_types=[name for name, _ in registry.definitions()],
            kinds=registry.kinds(),
            threads=self.config.threads,
            coroutines=self.config.coroutines,
            processes=self.config.processes,
            code_version=get_settings().code_version,
        )

    def _is_over(self) -> bool:
        return all(slot.process is None and (slot.done or self.stops) for slot in self.slots)

    def _turn(self, heart: Heart) -> None:
        if not heart.is_alive and not self.stops:
            logger.error("Worker %s cannot say any more that it lives; stopping", self.config.name)
            self.worst = int(Exit.FAILURE)
            self.request_stop()
        if heart.asked_to_drain and not self.stops:
            logger.warning("Worker %s was asked to drain by an operator; stopping", self.config.name)
            self.request_stop()
        for slot in self.slots:
            self._look_at(slot, heart)
            if slot.bell is not None and self._listener is not None:
                slot.bell.tell(heard=self._listener.works)
        if self._stacks_asked:
            self._pass_on_request_for_stacks()
        if self.stops:
            heart.note_stopping()
            for slot in self.slots:
                self._pass_on_stops(slot)
        elif heart.registered.is_set() and not self.room.is_reserved:
            self._start_children()
        self.room.look()
        running = [(slot.child, slot.process.pid, slot.line) for slot in self.slots if slot.process and slot.line]
        self.pulse.turn(heart, running, stopping=bool(self.stops))

    def _living(self) -> list[int]:
        return [slot.child for slot in self.slots if slot.process is not None]

    def _send(self, child: int, order: Order, number: int) -> None:
        for slot in self.slots:
            if slot.child == child and slot.line is not None:
                slot.line.send(order, number)

    def _look_at(self, slot: Slot, heart: Heart) -> None:
        if slot.process is None or slot.line is None:
            return
        status = slot.process.poll()  # first: what it told before it died is still in the line
        for word, number in slot.line.listen():
            self.room.hear(slot.child, word, number)
        if slot.line.was_ready:
            self._was_ready, slot.failed_starts, self._failed_starts = True, 0, 0
        if status is None:
            return
        if self.outlet is not None:
            self.outlet.child_ended(slot.process.pid)
        was_ready = slot.line.was_ready
        on_purpose = ended_on_purpose(announced=slot.line.is_ending, killed_by_supervisor=slot.killed)
        slot.line.close()
        if slot.bell is not None:
            slot.bell.close()
        slot.process, slot.line, slot.bell = None, None, None
        self.room.left(slot.child)
        heart.report_death(child=slot.child, status=status, on_purpose=on_purpose)
        self._after_exit(slot, status, was_ready=was_ready)

    def _after_exit(self, slot: Slot, status: int, *, was_ready: bool) -> None:
        if status == Exit.CLEAN and (self.config.drain or self.stops):
            slot.done = True
            return
        if self.stops:
            grace_exceeded = status == Exit.GRACE_EXCEEDED or slot.kill_at <= clock.boot_seconds()
            self.worst = max(self.worst, int(Exit.GRACE_EXCEEDED if grace_exceeded else Exit.CLEAN))
        level = logging.INFO if status == Exit.RECYCLE else logging.WARNING
        logger.log(level, "Child %s of worker %s ended with status %s", slot.child, self.config.name, status)
        telemetry.emit("child.ended", worker=self.config.name, child=slot.child, status=status)
        if not was_ready:
            self._after_failed_start(slot)

    def _after_failed_start(self, slot: Slot) -> None:
        """Wait longer and longer; give up if no child has ever been ready."""
        slot.failed_starts += 1
        self._failed_starts += 1
        slot.start_not_before = clock.boot_seconds() + min(0.25 * 2.0 ** (slot.failed_starts - 1), 10.0)
        if self._failed_starts >= STARTS and not self._was_ready and not self.stops:
            logger.error("No child of worker %s could start in %s tries; giving up", self.config.name, STARTS)
            self.worst = int(Exit.FAILURE)
            self.request_stop()

    def _pass_on_stops(self, slot: Slot) -> None:
        if slot.process is None or slot.line is None:
            return
        now = clock.boot_seconds()
        if slot.stops_sent < min(self.stops, 2):
            slot.stops_sent = min(self.stops, 2)
            at_once = slot.stops_sent == 2
            slot.line.send(Order.STOP_NOW if at_once else Order.DRAIN)
            slot.kill_at = now + longest_stop(0.0 if at_once else self.config.grace)
        if now >= slot.kill_at and slot.process.poll() is None:
            slot.killed = True
            slot.process.kill()

    def _start_children(self) -> None:
        now = clock.boot_seconds()
        for slot in self.slots:
            if slot.process is None and not slot.done and now >= slot.start_not_before:
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        self._children += 1
        slot.child, slot.stops_sent, slot.kill_at, slot.killed = self._children, 0, float("inf"), False
        line, bell = ParentEnd(), Bell()
        config = self.config.for_child(child=slot.child, slot=slot.number, link=line.descriptor, bell=bell.descriptor)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        try:
            slot.process = subprocess.Popen(
                [sys.executable, "-m", "django_jobs.worker.child", config.to_json()],
                env={**os.environ, "PYTHONPATH": path, **(self.outlet.environment() if self.outlet else {})},
                pass_fds=[line.descriptor, bell.descriptor],
                stdin=subprocess.DEVNULL,
            )
        except OSError:
            line.close()
            bell.close()
            logger.exception("A child of worker %s could not be started", self.config.name)
            self._after_failed_start(slot)
            return
        line.handed_over()
        bell.handed_over()
        slot.line, slot.bell = line, bell

    def _kill_all(self) -> None:
        for slot in self.slots:
            if slot.process is not None:
                slot.process.kill()
                slot.process.wait()


def _longest_runtime() -> float:
    """Return after how many seconds any healthy handler of this code has ended."""
    return max((item.terms.max_runtime.total_seconds() for _, item in registry.definitions()), default=60.0)
