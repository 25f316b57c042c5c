"""Waking a loop from signal handlers and other threads without a lock: a pipe to poll."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable


class Wake:
    """A self-pipe. Safe to set from a signal handler, where taking a lock could wait for ever."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self.write_end, False)
        self._poll = select.poll()
        self._poll.register(self.read_end, select.POLLIN)
        self._watched: dict[int, Callable[[], bool]] = {}

    def watch(self, descriptor: int, heard: Callable[[], bool]) -> None:
        """Also wait for what comes on ``descriptor``; ``heard`` reads it and says whether that is worth waking up."""
        self._watched[descriptor] = heard
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        """Wait for it no more."""
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def set(self) -> None:
        """End the present or the next wait."""
        with contextlib.suppress(OSError):  # full: it is awake already
            os.write(self.write_end, b"x")

    def wait(self, seconds: float) -> bool:
        """Wait until set or until the time is over; returns whether it was set. Interrupted by signals, it goes on."""
        woken = False
        for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000):
            if descriptor == self.read_end:
                woken = True
                with contextlib.suppress(BlockingIOError):
                    os.read(self.read_end, 4096)
            elif (heard := self._watched.get(descriptor)) is not None:
                woken = heard() or woken
        return woken

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_end)
        os.close(self.write_end)
