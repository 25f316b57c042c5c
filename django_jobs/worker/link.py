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


TELL_EVERY = 1.0  # seconds between two equal reports


class Turn(Enum):
    """How a round of a child's loop went, as the child reports it."""

    LOOKED = "looked"  # it looked for jobs and the database answered
    BUSY = "busy"  # it wanted nothing of the database
    FAILED = "failed"  # the database did not answer


class ChildEnd:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._line = socket.socket(fileno=descriptor)
        self._line.set_inheritable(False)  # a program that a handler starts must not keep the line open
        self._lines = _Lines()
        self._told: tuple[Turn | None, float] = (None, 0.0)
        self._orders: list[tuple[Order, int]] = []

    def tell(self, word: Word | Turn, number: int = 0) -> bool:
        """Tell the supervisor; False when it cannot listen now. Never waits: a frozen supervisor must not stop work."""
        try:
            self._line.send(_line(word.value, number), socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def ready(self) -> None:
        """Tell that the code is loaded and jobs are taken from now on."""
        self.tell(Word.READY)

    def turned(self, turn: Turn) -> None:
        """Report a round of the loop."""
        now = clock.boot_seconds()
        before, at = self._told
        if turn is not before or now - at >= TELL_EVERY:
            self._told = (turn, now)
            self.tell(turn)

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
        self._told: list[Told] = []
        self.was_ready = False
        self.is_ending = False
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

    def send(self, order: Order, number: int = 0) -> None:
        """Give an order; a child that is gone does not mind."""
        with contextlib.suppress(OSError):
            self._line.send(_line(order.value, number))

    def listen(self) -> list[Told]:
        """Return what the child told since the last call, also the last words of a dead one; never waits."""
        self.hear()
        told, self._told = self._told, []
        return told

    def hear(self) -> None:
        """Take in what the child told since the last time; its words are kept for :meth:`listen`."""
        with contextlib.suppress(OSError):
            while chunk := self._line.recv(_CHUNK):
                for word, number in self._lines.of(chunk):
                    if word in _TURNS:
                        self._took_turn(Turn(word))
                    elif word in _WORDS:
                        self._took_word(Word(word), number)

    def _took_word(self, word: Word, number: int) -> None:
        self._told.append(Told(word, number))
        self.is_ending = self.is_ending or word is Word.ENDING
        if word is Word.READY:
            self.was_ready = True
            self.turned_at = self.well_at = clock.boot_seconds()

    def _took_turn(self, turn: Turn) -> None:
        now = self.turned_at = clock.boot_seconds()
        self.failing = turn is Turn.FAILED
        if not self.failing:
            self.well_at = now
        if turn is Turn.LOOKED:
            self.contact_at = now

    def close(self) -> None:
        """Close both ends."""
        self._line.close()
        self._theirs.close()


# What a handler wrote into the line by mistake is no word.
_WORDS = frozenset(word.value for word in Word)
_TURNS = frozenset(turn.value for turn in Turn)
