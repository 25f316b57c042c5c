"""The line between a supervisor and one child: orders down, words up, and the other side's death as its end.

Both speak in lines of text: a word, and a number where one belongs to it.
"""

from __future__ import annotations

import contextlib
import socket
from enum import Enum
from typing import NamedTuple

from django_jobs import clock

_CHUNK = 4096
TELL_EVERY = 1.0  # seconds between two equal reports of a child's loop


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
    LOOKED = "looked"  # a round of the loop: it looked for jobs and the database answered
    BUSY = "busy"  # a round that wanted nothing of the database
    FAILED = "failed"  # a round in which the database did not answer


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
        self._turned: tuple[Word | None, float] = (None, 0.0)

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

    def turned(self, turn: Word) -> None:
        """Report a round of the loop, an equal one once a second."""
        now = clock.boot_seconds()
        before, at = self._turned
        if (turn is not before or now - at >= TELL_EVERY) and self.tell(turn):
            self._turned = (turn, now)

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
        self.turned_at = self.well_at = clock.boot_seconds()  # a child that starts has not failed yet
        self.contact_at: float | None = None  # when the database answered it last
        self.failing = False

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
        """Return what the child told since the last call, also the last words of a dead one; never waits.

        Reports of rounds are kept here: when the loop went round, when nothing failed, and when the database answered.
        """
        told: list[Told] = []
        with contextlib.suppress(OSError):
            while chunk := self._line.recv(_CHUNK):
                told += [Told(Word(word), number) for word, number in self._lines.of(chunk) if word in _WORDS]
        for word, _ in told:
            if word is Word.READY:
                self.was_ready, self.turned_at, self.well_at = True, clock.boot_seconds(), clock.boot_seconds()
            self.is_ending = self.is_ending or word is Word.ENDING
            if word in _TURNS:
                self._take_in(word)
        return [item for item in told if item.word not in _TURNS]

    def _take_in(self, turn: Word) -> None:
        now = clock.boot_seconds()
        self.turned_at = now
        self.failing = turn is Word.FAILED
        if not self.failing:
            self.well_at = now
        if turn is Word.LOOKED:
            self.contact_at = now

    def close(self) -> None:
        """Close both ends."""
        self._line.close()
        self._theirs.close()


_WORDS = frozenset(word.value for word in Word)  # what a handler wrote into the line by mistake is no word
_TURNS = frozenset({Word.LOOKED, Word.BUSY, Word.FAILED})
