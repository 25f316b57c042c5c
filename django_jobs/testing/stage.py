"""Whose turn it is: the test's, or that of worker code which may be held up in the middle and go on later."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from django.db import connections

from django_jobs.testing.lending import is_closed
from django_jobs.testing.mortal import Run

T = TypeVar("T")

_here = threading.local()


class Actor(Generic[T]):
    """Work in a thread of its own, on the connections of the test; either it or the test has the turn, never both."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = contextvars.copy_context().run, work
        # One that is not open is not shared: what the thread opens, it also has to close, and Django wants that of the
        # thread that made the object.
        self._given = [
            found
            for found in connections.all(initialized_only=True)
            if found.connection is not None or is_closed(found)
        ]
        self._go, self._back = threading.Event(), threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._run: Run | None = None
        self._is_given_up = False
        self.has_ended = False
        self._thread = threading.Thread(target=self._act, name="django-jobs-kit", daemon=True)

    def begin(self) -> T | None:
        """Give it the turn; returns what it came to, None when it was held up."""
        self._thread.start()
        return self._wait()

    def go_on(self) -> T | None:
        """Give it the turn again after it was held up."""
        self._go.set()
        return self._wait()

    def give_up(self) -> None:
        """End it where it was held up, as a process that is killed there."""
        if not self.has_ended:
            self._is_given_up = True
            self.go_on()

    @property
    def worker_id(self) -> Any:
        """The worker whose process stands still here."""
        return self._run.worker_id if self._run else None

    def hold(self, run: Run) -> None:
        """Give the turn back to the test, in the middle of the work; called by its thread."""
        run.freeze()
        self._run = run
        self._back.set()
        self._go.wait()
        self._go.clear()
        if self._is_given_up:
            run.die()

    def _wait(self) -> T | None:
        self._back.wait()
        self._back.clear()
        if self.has_ended:
            self._thread.join()
            if self._error is not None:
                raise self._error
        return self._result

    def _act(self) -> None:
        for connection in self._given:
            connections[connection.alias] = connection
        _here.actor = self
        run, work = self._work
        try:
            self._result = run(work)
        except BaseException as error:  # noqa: BLE001  the thread of the test gets it
            self._error = error
        finally:
            self._leave()
            self.has_ended = True
            self._back.set()

    def _leave(self) -> None:
        mine = {id(connection) for connection in self._given}
        for connection in connections.all(initialized_only=True):
            if id(connection) not in mine:
                connection.close()
            del connections[connection.alias]


def current_actor() -> Actor[Any] | None:
    """Return the actor whose thread this is; None in the thread of the test."""
    return getattr(_here, "actor", None)
