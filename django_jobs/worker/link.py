"""The line between a supervisor and one child: orders down, words up, and the other side's death as its end.

Both speak in lines of text: a word, and a number where one belongs to it.
"""

from __future__ import annotations

import contextlib
import socket
from enum import Enum
from typing import NamedTuple

_CHUNK = 4096


class Order(Enum):
    """What a supervisor asks of a child.

    Not signals: an init system that stops a whole group sends each process its own, and a child must not take the
    supervisor's order for a second one.
    """

    DRAIN = "drain"
    STOP_NOW = "stop"
    HOLD = "hold"  # start nothing until further orders, and tell when nothing runs
    GRANT = "grant"  # no other child runs anything: the job that must run alone on its worker may start
    RESUME = "resume"


class Word(Enum):
    """What a child tells."""

    READY = "ready"  # the code is loaded and jobs are taken from now on
    ENDING = "ending"  # whatever ends this process from now on, its worker wanted it to end
    WANT = "want"  # a job is due that must run alone on its worker
    QUIET = "quiet"  # nothing runs here, and nothing will start until further orders
    DONE = "done"  # the worker is no longer needed for one job alone


class Told(NamedTuple):
    """One word of a child; ``number`` names the hold that it answers."""

    word: Word
    number: int = 0


class _Lines:
    """Whole lines out of a stream that may deliver parts of them."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, chunk: bytes) -> list[tuple[str, int]]:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        found = []
        for line in whole:
            word, _, number = line.decode("ascii", "replace").partition(" ")
            found.append((word, int(number) if number.isdigit() else 0))
        return found


def _line(word: str, number: int) -> bytes:
    return f"{word} {number}\n".encode()


class ChildEnd:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._line.set_inheritable(False)  # a program that a handler starts must not keep the line open
        self._lines = _Lines()
        self._orders: list[tuple[Order, int]] = []

    def tell(self, word: Word, number: int = 0) -> bool:
        """Tell the supervisor; False when it cannot listen now. Never waits: a frozen supervisor must not stop work."""
        try:
            self._line.send(_line(word.value, number), socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def ready(self) -> None:
        """Tell that the code is loaded and jobs are taken from now on."""
        self.tell(Word.READY)

    def next_order(self) -> tuple[Order, int] | None:
        """Wait for the next order and its number; None when the supervisor has died."""
        while not self._orders:
            try:
                chunk = self._line.recv(_CHUNK)
            except OSError:
                return None
            if not chunk:
                return None
            self._orders += [(Order(word), number) for word, number in self._lines.of(chunk)]
        return self._orders.pop(0)


class ParentEnd:
    """The supervisor's end of one child."""

    def __init__(self) -> None:
        self._line, self._theirs = socket.socketpair()
        self._line.setblocking(False)
        self._lines = _Lines()
        self.was_ready = False
        self.is_ending = False

    @property
    def descriptor(self) -> int:
        """What the child has to inherit."""
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """Forget the child's end once the child has it."""
        self._theirs.close()

    def send(self, order: Order, number: int = 0) -> None:
        """Give an order; a child that is gone does not mind."""
        with contextlib.suppress(OSError):
            self._line.send(_line(order.value, number))

    def listen(self) -> list[Told]:
        """Return what the child told since the last call, also the last words of a dead one; never waits."""
        told: list[Told] = []
        with contextlib.suppress(OSError):
            while chunk := self._line.recv(_CHUNK):
                told += [Told(Word(word), number) for word, number in self._lines.of(chunk) if word in _WORDS]
        for word, _ in told:
            self.was_ready = self.was_ready or word is Word.READY
            self.is_ending = self.is_ending or word is Word.ENDING
        return told

    def close(self) -> None:
        """Close both ends."""
        self._line.close()
        self._theirs.close()


_WORDS = frozenset(word.value for word in Word)  # what a handler wrote into the line by mistake is no word
