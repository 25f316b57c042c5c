"""Room for a job that must run alone on its worker: no other child runs anything meanwhile.

The supervisor keeps the reservation in memory. One hold at a time, each with a number, so that an answer to an earlier
hold is never taken for an answer to this one. A child that died is quiet, and a holder that died ends the hold. A hold
that is not granted within ``patience`` seconds is given up: a child that is stuck must not stop its whole worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from enum import Enum

from django_jobs import clock
from django_jobs.worker.link import Order, Word

ASK_EVERY = 1.0  # seconds between two requests of a child for the room


class Room:
    """The supervisor's side. ``children()`` are the children that live now, by their numbers, started ones included."""

    def __init__(
        self, send: Callable[[int, Order, int], None], children: Callable[[], Collection[int]], *, patience: float
    ) -> None:
        self._send = send
        self._children = children
        self._patience = patience
        self._give_up_at = self._not_before = float("-inf")
        self._number = 0
        self._quiet: set[int] = set()
        self._granted = False
        self.holder: int | None = None

    @property
    def is_reserved(self) -> bool:
        """Whether the worker makes, or has made, room: no child may be started now, it would not know."""
        return self.holder is not None

    def hear(self, child: int, word: Word, number: int) -> None:
        """Take a word of a child."""
        if word is Word.WANT:
            self._reserve(child)
        elif number != self._number or not self.is_reserved:
            return  # about an earlier hold
        elif word is Word.QUIET:
            self._quiet.add(child)
            self._grant_if_quiet()
        elif word is Word.DONE and child == self.holder:
            self._resume()

    def left(self, child: int) -> None:
        """Take notice that a child is dead; ``children()`` no longer has it."""
        if child == self.holder:
            self._resume()
        else:
            self._grant_if_quiet()

    def look(self) -> None:
        """Give up a hold that waits too long; later it may be tried again."""
        now = clock.boot_seconds()
        if self.is_reserved and not self._granted and now >= self._give_up_at:
            self._not_before = now + self._patience
            self._resume()

    def _reserve(self, child: int) -> None:
        now = clock.boot_seconds()
        if self.is_reserved or child not in self._children() or now < self._not_before:
            return
        self._number += 1
        self._give_up_at = now + self._patience
        self.holder, self._granted = child, False
        self._quiet.clear()
        for other in self._children():
            self._send(other, Order.HOLD, self._number)

    def _grant_if_quiet(self) -> None:
        if self.holder is not None and not self._granted and self._quiet.issuperset(self._children()):
            self._granted = True
            self._send(self.holder, Order.GRANT, self._number)

    def _resume(self) -> None:
        self.holder, self._granted = None, False
        for child in self._children():
            self._send(child, Order.RESUME, self._number)


class Stand(Enum):
    """How a child stands towards the room."""

    FREE = "free"  # it may start what it likes
    HELD = "held"  # it starts nothing
    GRANTED = "granted"  # the worker is its own


class Seat:
    """The child's side: orders come from one thread, the rest is called by the child's loop alone."""

    def __init__(self, tell: Callable[[Word, int], bool]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._stand, self._number = Stand.FREE, 0
        self._given_back = 0  # the number of the last hold that this child gave back; its grant comes too late
        self._to_end = 0  # the number of a hold whose end could not be told yet
        self._asked_at = float("-inf")
        self._used = False

    def follow(self, order: Order, number: int) -> None:
        """Take an order about the room."""
        with self._lock:
            if order is Order.HOLD:
                self._stand, self._number, self._used = Stand.HELD, number, False
            elif number != self._number:
                return  # about an earlier hold
            elif order is Order.GRANT and number != self._given_back:
                self._stand = Stand.GRANTED
            elif order is Order.RESUME:
                self._stand = Stand.FREE

    def stand(self, *, busy: bool) -> Stand:
        """Return what may be started now, and tell the supervisor what it waits for; call it before each claim."""
        with self._lock:
            stand, number = self._stand, self._number
        if self._to_end and self._tell(Word.DONE, self._to_end):
            self._to_end = 0
        if stand is Stand.HELD and not busy:
            self._tell(Word.QUIET, number)
        if stand is Stand.GRANTED and self._used and not busy:
            self.give_back()
            return Stand.HELD  # until the supervisor lets everybody go on
        return stand

    @property
    def is_free(self) -> bool:
        """Whether nothing is asked of this child."""
        return self._stand is Stand.FREE

    def ask(self) -> None:
        """Ask for the whole worker; asked again while the job waits, in case another one came first."""
        now = clock.boot_seconds()
        if now - self._asked_at >= ASK_EVERY:
            self._asked_at = now
            self._tell(Word.WANT, 0)

    def use(self) -> None:
        """Note that the job which needs the worker has started."""
        self._used = True

    def give_back(self) -> None:
        """Tell that the room is not, or no longer, needed here; harmless in a child that does not hold it."""
        with self._lock:
            number = self._number
            if self._stand is Stand.FREE or self._given_back == number:
                return
            self._given_back, self._stand = number, Stand.HELD
        if not self._tell(Word.DONE, number):
            self._to_end = number
