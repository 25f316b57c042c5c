"""An end for database calls of the worker's own loops that the server itself does not end: a frozen backend, a lock.

A statement time-out lives in the server, so it ends nothing when the server stands still. Here a thread of this process
looks at the clock: first it asks the server to cancel the statement, which frees what it waits for; if that does not
help, it ends the connection, and the loop goes on with a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_jobs import telemetry

logger = logging.getLogger("django_jobs.worker")

LOOK_EVERY = 0.25  # seconds
CANCEL_TIME = 2.0  # seconds that the server gets for a cancellation, before the connection is ended
HURRIED = 2.0  # seconds that a call may take while this process ends


@dataclass(slots=True)
class Call:
    """A call under way; ``cancelling`` is set when the server was asked to cancel it."""

    connection: BaseDatabaseWrapper
    since: float
    cancel_at: float
    hurries: bool
    cancelling: threading.Thread | None = None
    is_cut: bool = False


class Watch:
    """The calls of one process that are under way; the thread that watches them starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._hurried = False

    @contextmanager
    def over(self, using: str, seconds: float, *, hurries: bool = True) -> Iterator[Call | None]:
        """Let nothing in this block wait for PostgreSQL much longer than ``seconds``; it then fails as a lost call.

        It yields what tells whether that was asked for; None on SQLite. Statements of handlers do not hurry: a process
        that has to end waits for them.

        A cancellation names a session, not a statement. One that is on its way when the block ends is waited for, so
        that it cannot hit what the session does next; if it does not end, the connection does.
        """
        connection = connections[using]
        if connection.vendor != "postgresql":  # SQLite waits for nothing but its lock, with a limit of its own
            yield None
            return
        now = time.monotonic()
        number = next(self._numbers)
        call = Call(connection, now, now + (HURRIED if self._hurried and hurries else seconds), hurries)
        with self._lock:
            self._calls[number] = call
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="django_jobs-watch", daemon=True)
                self._thread.start()
        try:
            yield call
        finally:
            with self._lock:
                del self._calls[number]
            self._wait_for_cancellation(call)

    def hurry(self) -> None:
        """Have calls end soon, those under way too: the process has to. Takes no lock, for signal handlers."""
        self._hurried = True

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with contextlib.suppress(Exception):  # without this thread a frozen server would hold the loops for good
                self.look()
            pause.wait(LOOK_EVERY)

    def look(self) -> None:
        """End what has taken too long by now."""
        now = time.monotonic()
        with self._lock:  # nobody leaves its block, and closes its connection, meanwhile
            for call in self._calls.values():
                self._look_at(call, now)

    def _look_at(self, call: Call, now: float) -> None:
        due = min(call.cancel_at, call.since + HURRIED) if self._hurried and call.hurries else call.cancel_at
        if now < due or call.connection.connection is None:  # connecting has a limit of its own
            return
        call.cancel_at = now + CANCEL_TIME
        call.since = now
        if call.cancelling is None:
            call.cancelling = threading.Thread(target=_cancel, args=(call.connection.connection,), daemon=True)
            call.cancelling.start()
        else:
            _cut(call)

    def _wait_for_cancellation(self, call: Call) -> None:
        if call.cancelling is None or call.is_cut:
            return
        call.cancelling.join(timeout=CANCEL_TIME)
        if call.cancelling.is_alive():
            _cut(call)


def _cut(call: Call) -> None:
    from django_jobs.worker.connection import cut

    call.is_cut = True
    telemetry.emit("database.cut", database=call.connection.alias)
    cut(call.connection)


def _cancel(raw: object) -> None:
    """Ask the server to cancel; returns when the server has passed the request on, or does not answer."""
    telemetry.emit("database.cancelled")
    with contextlib.suppress(Exception):  # a server that stands still answers no cancellation either
        safe = getattr(raw, "cancel_safe", None)
        if safe is not None:
            safe(timeout=CANCEL_TIME)
        else:
            raw.cancel()  # type: ignore[attr-defined]


watch = Watch()
