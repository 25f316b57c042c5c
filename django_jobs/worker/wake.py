"""Waking a loop from signal handlers and other threads without a lock: a pipe to poll."""

from __future__ import annotations

import contextlib
import os
import select


class Wake:
    """A self-pipe. Safe to set from a signal handler, where taking a lock could wait for ever."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self.write_end, False)
        self._poll = select.poll()
        self._poll.register(self.read_end, select.POLLIN)

    def set(self) -> None:
        """End the present or the next wait."""
        with contextlib.suppress(OSError):  # full: it is awake already
            os.write(self.write_end, b"x")

    def wait(self, seconds: float) -> bool:
        """Wait until set or until the time is over; returns whether it was set. Interrupted by signals, it goes on."""
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.read_end, 4096)
        return bool(ready)

    def close(self) -> None:
        """Close both ends."""
        os.close(self.read_end)
        os.close(self.write_end)
