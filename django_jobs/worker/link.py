"""The line between a supervisor and one child: orders down, readiness up, and the other side's death as its end."""

from __future__ import annotations

import contextlib
import socket
from enum import Enum

from django_jobs import clock


class Order(Enum):
    """What a supervisor asks of a child.

    Not signals: an init system that stops a whole group sends each process its own, and a child must not take the
    supervisor's order for a second one.
    """

    DRAIN = b"d"
    STOP_NOW = b"n"


READY = b"r"
TELL_EVERY = 1.0  # seconds between two equal reports


class Turn(Enum):
    """How a round of a child's loop went, as the child reports it."""

    LOOKED = b"l"  # it looked for jobs and the database answered
    BUSY = b"b"  # it wanted nothing of the database
    FAILED = b"f"  # the database did not answer


class ChildEnd:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._line.set_inheritable(False)  # a program that a handler starts must not keep the line open
        self._told: tuple[Turn | None, float] = (None, 0.0)

    def ready(self) -> None:
        """Tell that the code is loaded and jobs are taken from now on."""
        with contextlib.suppress(OSError):
            self._line.send(READY)

    def turned(self, turn: Turn) -> None:
        """Report a round of the loop; never waits for the supervisor."""
        now = clock.boot_seconds()
        before, at = self._told
        if turn is before and now - at < TELL_EVERY:
            return
        self._told = (turn, now)
        with contextlib.suppress(OSError):
            self._line.send(turn.value, socket.MSG_DONTWAIT)

    def next_order(self) -> Order | None:
        """Wait for the next order; None when the supervisor has died."""
        try:
            text = self._line.recv(1)
        except OSError:
            return None
        return Order(text) if text else None


class ParentEnd:
    """The supervisor's end of one child."""

    def __init__(self) -> None:
        self._line, self._theirs = socket.socketpair()
        self._line.setblocking(False)
        self._ready = False
        self.turned_at = self.well_at = clock.boot_seconds()  # a child that starts has not failed yet
        self.contact_at: float | None = None
        self.failing = False

    @property
    def descriptor(self) -> int:
        """What the child has to inherit."""
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """Forget the child's end once the child has it."""
        self._theirs.close()

    def send(self, order: Order) -> None:
        """Give an order; a child that is gone does not mind."""
        with contextlib.suppress(OSError):
            self._line.send(order.value)

    @property
    def was_ready(self) -> bool:
        """Whether the child ever told that it is ready."""
        self.listen()
        return self._ready

    def listen(self) -> None:
        """Take in what the child told since the last time."""
        told = b""
        with contextlib.suppress(OSError):
            told = self._line.recv(4096)
        for letter in told:
            self._take_in(bytes((letter,)))

    def _take_in(self, letter: bytes) -> None:
        now = clock.boot_seconds()
        if letter == READY:
            self._ready, self.turned_at, self.well_at = True, now, now
            return
        self.turned_at = now
        self.failing = letter == Turn.FAILED.value
        if not self.failing:
            self.well_at = now
        if letter == Turn.LOOKED.value:
            self.contact_at = now

    def close(self) -> None:
        """Close both ends."""
        self._line.close()
        self._theirs.close()
