"""Waiting for facts, each time with a limit and with the name of what was waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from testproject.demo.errors import DemoError

T = TypeVar("T")

LOOK_EVERY = 0.05  # seconds between two looks at the database or the process table


class Patience:
    """The time that a whole run may take; every wait ends with it, whatever its own limit."""

    def __init__(self, *, seconds: float, tick: Callable[[], None] = lambda: None) -> None:
        self._ends_at = time.monotonic() + seconds
        self._seconds = seconds
        self.tick = tick

    def left(self, limit: float) -> float:
        """Return the seconds that a wait with this limit of its own may take, never below zero."""
        return max(0.0, min(limit, self._ends_at - time.monotonic()))

    def until(self, what: str, look: Callable[[], T | None], *, seconds: float) -> T:
        """
        Look again and again until there is something, and return it.

        Raises DemoError that names `what` when the time is over; `tick` is called between two looks.
        """
        allowed = self.left(seconds)
        deadline = time.monotonic() + allowed
        while True:
            found = look()
            if found:
                return found
            if time.monotonic() >= deadline:
                raise DemoError(self._too_late(what, allowed, seconds))
            self.tick()
            time.sleep(LOOK_EVERY)

    def _too_late(self, what: str, allowed: float, seconds: float) -> str:
        if allowed < seconds:
            return f"The whole run may take {self._seconds:g} s, and they ended while it waited for {what}."
        return f"Waited {seconds:g} s for {what}, in vain."
