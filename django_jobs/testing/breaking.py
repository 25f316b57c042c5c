"""What a crash and a lost line do to a lent connection: the socket is gone first, and nothing is written after it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from django.db import OperationalError

from django_jobs.testing.life import SimulatedCrash

Phase = Literal["request", "reply"]

_WRITES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b")
_IDLE = 0  # libpq's PQTRANS_IDLE
LOST_REQUEST = "A test lost the connection before this arrived."
LOST_REPLY = "A test lost the reply to this."
ENDED_IDLE = "The server ended this session while the process stood still inside a transaction."


class Severed:
    """Stands where the driver's connection stood: all that is asked of it fails."""

    closed = True
    in_transaction = False

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self.__dict__["_error"] = error

    def __getattr__(self, name: str) -> Any:
        error: BaseException = self.__dict__["_error"]()
        raise error

    def __setattr__(self, name: str, value: object) -> None:
        error: BaseException = self.__dict__["_error"]()
        raise error

    def close(self) -> None:
        """Have nothing to let go of."""


class Breakable:
    """Mixed into a lent connection: its line can be cut between two statements, and its process can die."""

    is_dead = False
    _loses: Phase | Literal[""] = ""
    connection: Any
    errors_occurred: bool

    def sever(self, error: Callable[[], BaseException]) -> None:
        """Take back the transaction that is open, as the server does, and let every use from now on fail."""
        if self.connection is not None and not self.is_severed:
            self.let_go()
        self.connection = Severed(error)
        self.errors_occurred = True

    @property
    def is_severed(self) -> bool:
        """Whether the line is cut."""
        return isinstance(self.connection, Severed)

    def die(self) -> None:
        """Refuse everything for ever."""
        self.is_dead = True
        self.sever(lambda: SimulatedCrash("The process of this attempt is dead."))

    def freeze(self) -> None:
        """Stand still for longer than a server waits for an open transaction."""
        if not self.is_severed and self.connection is not None and self.has_begun:
            self.sever(lambda: OperationalError(ENDED_IDLE))

    def lose_next(self, phase: Phase) -> None:
        """Lose what is sent next, or the reply to what is committed next."""
        self._loses = phase

    @property
    def has_begun(self) -> bool:
        """Whether a transaction of the worker is open."""
        return bool(self.raw_is_busy())

    def raw_is_busy(self: Any) -> bool:
        """Ask the driver whether a transaction is open."""
        if self.vendor == "postgresql":
            return bool(self.in_atomic_block or self.connection.pgconn.transaction_status != _IDLE)
        return bool(self.in_atomic_block or self.connection.in_transaction)

    def let_go(self: Any) -> None:
        """Take back what is open on the driver's connection, and leave that as it was found."""
        if self.vendor == "postgresql":
            self.connection.rollback()
            self.connection.autocommit = True
        elif self.connection.in_transaction:
            self.connection.rollback()

    def along_line(self: Any, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        """Run a statement, unless it is lost on its way; with its reply if that is what commits."""
        if self._loses == "request":
            self._lose(LOST_REQUEST)
        if self._loses == "reply" and not self.in_atomic_block and _WRITES.search(str(sql)):
            execute(sql, params, many, context)
            self._lose(LOST_REPLY)
        return execute(sql, params, many, context)

    def commit_along_line(self: Any, commit: Callable[[], object]) -> None:
        """Commit, unless that is lost on its way."""
        if self.is_severed:
            self.connection.commit()  # raises what it was severed with
        if self._loses == "request":
            self._lose(LOST_REQUEST)
        commit()
        if self._loses == "reply":
            self._lose(LOST_REPLY)

    def _lose(self, text: str) -> None:
        self._loses = ""
        self.sever(lambda: OperationalError(text))
        raise OperationalError(text)
