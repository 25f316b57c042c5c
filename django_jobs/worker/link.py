"""The line between a supervisor and one child: orders down, readiness up, and the other side's death as its end."""

from __future__ import annotations

import contextlib
import socket
from enum import Enum


class Order(Enum):
    """What a supervisor asks of a child.

    Not signals: an init system that stops a whole group sends each process its own, and a child must not take the
    supervisor's order for a second one.
    """

    DRAIN = b"d"
    STOP_NOW = b"n"


READY = b"r"


class ChildEnd:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._line.set_inheritable(False)  # a program that a handler starts must not keep the line open

    def ready(self) -> None:
        """Tell that the code is loaded and jobs are taken from now on."""
        with contextlib.suppress(OSError):
            self._line.send(READY)

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
        if not self._ready:
            with contextlib.suppress(OSError):
                self._ready = self._line.recv(16) != b""
        return self._ready

    def close(self) -> None:
        """Close both ends."""
        self._line.close()
        self._theirs.close()
