"""A bell from the supervisor to each child: something may be due, and whether notifications are heard at all.

Not the line of orders: a child that stands still lets what is sent to it pile up, and an order to stop must still fit.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable

RING = b"!"
HEARD = b"+"  # notifications are heard from now on: a sleeping child asks for them
DEAF = b"-"
EVENTS = b"e"  # there are events to deliver


class Bell:
    """The supervisor's end; may be rung from any thread and never waits."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._lock = threading.Lock()
        self._told = DEAF

    @property
    def descriptor(self) -> int:
        """What the child has to inherit."""
        return self._read_end

    def handed_over(self) -> None:
        """Forget the child's end once the child has it."""
        os.close(self._read_end)
        self._read_end = -1

    def ring(self) -> None:
        """Wake the child if it sleeps; one that has not read what was sent before is awake soon anyway."""
        self._send(RING)

    def ring_for_events(self) -> None:
        """Wake the child's dispatcher."""
        self._send(EVENTS)

    def tell(self, *, heard: bool) -> None:
        """Say whether notifications are heard, if the child does not know; call it again until it gets through."""
        sign = HEARD if heard else DEAF
        if sign != self._told and self._send(sign):
            self._told = sign

    def _send(self, sign: bytes) -> bool:
        with self._lock, contextlib.suppress(OSError):
            if self._write_end >= 0:
                os.write(self._write_end, sign)
                return True
        return False

    def close(self) -> None:
        """Close what is open."""
        with self._lock:
            for descriptor in (self._read_end, self._write_end):
                if descriptor >= 0:
                    os.close(descriptor)
            self._read_end = self._write_end = -1


class BellEnd:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.heard = False  # whether notifications are heard
        self.over = False
        self.on_events: Callable[[], object] = lambda: None
        os.set_inheritable(descriptor, False)  # a program that a handler starts must not keep it
        os.set_blocking(descriptor, False)

    def read(self) -> bool:
        """Take what was sent; returns whether the bell rang. A supervisor that is gone rings no more."""
        try:
            signs = os.read(self.descriptor, 4096)
        except BlockingIOError:
            return False
        self.over = not signs
        states = [sign for sign in signs if sign in HEARD + DEAF]
        before = self.heard
        if states:
            self.heard = states[-1] == HEARD[0]
        if EVENTS in signs or (self.heard and not before):  # from now on the dispatcher can ask to be notified
            self.on_events()
        return RING in signs
