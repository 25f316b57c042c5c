"""The thread of a process that looks which handlers are to be told that their budget is over."""

from __future__ import annotations

import contextlib
import threading
from typing import Protocol

LOOK_EVERY = 0.25  # seconds, at most; a clock that a test moves is seen so late
LOOK_AGAIN = 0.02  # seconds, while a handler is due that is at no place for it


class Watched(Protocol):
    """What is looked at."""

    @property
    def seconds_left(self) -> float:
        """Seconds until it is to be told."""

    def look(self) -> None:
        """Tell it if its time is up."""


class SoftWatch:
    """Whose time is watched; the thread starts with the first one, and sleeps while there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._somebody = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        """Look at it from now on."""
        with self._lock:
            self._watched.add(watched)
            self._somebody.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="django_jobs-soft", daemon=True)
                self._thread.start()

    def remove(self, watched: Watched) -> None:
        """Look at it no more."""
        with self._lock:
            self._watched.discard(watched)
            if not self._watched:
                self._somebody.clear()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._somebody.wait()
            pause.wait(self._look())

    def _look(self) -> float:
        """Look once; returns after how many seconds to look again."""
        with self._lock:
            watched = list(self._watched)
        for item in watched:
            with contextlib.suppress(Exception):  # without this thread nobody would be told
                item.look()
        return min((LOOK_EVERY, *(max(item.seconds_left, LOOK_AGAIN) for item in watched)))


soft_watch = SoftWatch()
