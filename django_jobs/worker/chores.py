"""Work that a worker does besides jobs when somebody asked for it; a room above registers it before the worker starts.

Nobody asks most of the time: then it costs one read every five seconds, in the heart's own connection. While there is
something to do, a thread of its own does it, with a connection of its own, so that the heart is never held up.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.db import DatabaseError, connections

from django_jobs.worker.failures import failures

EVERY = 5.0  # seconds between two looks whether there is something to do
LONGEST_PAUSE = 5.0  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """``is_due`` asks with one read; ``turn`` works for a moment and says when to go on (None: nothing is left)."""

    name: str
    is_due: Callable[[str], bool]
    turn: Callable[[uuid.UUID, str], float | None]


_chores: dict[str, Chore] = {}


def register(chore: Chore) -> None:
    """Have every worker that starts in this process do this; the same name again replaces it."""
    _chores[chore.name] = chore


class Chores:
    """The threads of one worker."""

    def __init__(self, worker_id: uuid.UUID, *, using: str) -> None:
        self._worker_id = worker_id
        self._using = using
        self._stop = threading.Event()
        self._running: dict[str, threading.Thread] = {}

    def look(self) -> bool:
        """Start what is due and does not run."""
        for chore in list(_chores.values()):
            thread = self._running.get(chore.name)
            if self._stop.is_set() or (thread is not None and thread.is_alive()):
                continue
            if self._is_due(chore):
                thread = threading.Thread(
                    target=self._run, args=(chore,), name=f"django_jobs-{chore.name}", daemon=True
                )
                self._running[chore.name] = thread
                thread.start()
        return True

    def _is_due(self, chore: Chore) -> bool:
        """Ask one chore; an error of its own code holds up no other, one of the database is for whoever looks."""
        try:
            return chore.is_due(self._using)
        except DatabaseError:
            raise
        except Exception as error:  # noqa: BLE001  the next look asks again
            failures.note(chore.name, error, using=self._using)
            return False

    def stop(self) -> None:
        """Let each end after the turn that is under way; what is left, another worker does."""
        self._stop.set()

    def join(self, *, seconds: float) -> bool:
        """Wait for the threads; False when one still runs."""
        for thread in self._running.values():
            thread.join(timeout=seconds)
        return not any(thread.is_alive() for thread in self._running.values())

    def _run(self, chore: Chore) -> None:
        try:
            while not self._stop.is_set():
                pause = chore.turn(self._worker_id, self._using)
                if pause is None:
                    return
                self._stop.wait(min(max(pause, 0.0), LONGEST_PAUSE))
        except Exception as error:  # noqa: BLE001  the next look starts it again
            failures.note(chore.name, error, using=self._using)
        finally:
            connections.close_all()
