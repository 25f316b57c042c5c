"""Whether a handler's transaction is still the one that was begun for it, whatever ended it.

The text of a statement tells only of an end that stands at its front. So the driver's connection is asked, which costs
nothing: outside of a transaction it is idle. A text of several statements can end one transaction and begin the next;
then the server says when its transaction began, before such a text and once more at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_SEVERAL = re.compile(r";\s*\S")  # also inside of a string: then one question more is asked, and nothing else happens
_IDLE, _IN_TRANSACTION = 0, 2  # libpq's PQTRANS_IDLE and PQTRANS_INTRANS
_BEGAN = "SELECT transaction_timestamp()::text"  # no two transactions of a session have the same; savepoints keep it


class Kept:
    """The transaction that is open on one connection of the driver, from the begin of a block to its end."""

    def __init__(self, raw: Any, *, vendor: str) -> None:
        self._raw = raw
        self._vendor = vendor
        self._watches = False
        self._is_open = False  # it was seen to be open: with PostgreSQL's driver it begins at the first statement
        self._ended = False
        self._began: bytes | None = None  # asked before the first text of several statements

    def begin(self) -> None:
        """Look from now on: a block was entered."""
        self._watches, self._is_open, self._ended, self._began = True, False, False, None

    def end(self) -> None:
        """Look no more: what follows is the COMMIT or the rollback of the block."""
        self._watches = False

    def note_end(self) -> None:
        """Remember that a statement says it ends the transaction."""
        self._ended = True

    def run(self, text: str, action: Callable[[], T]) -> T:
        """Do ``action``, which sends ``text``, and look at the transaction before and after it."""
        if not self._watches:
            return action()
        self._look()
        is_several = self._may_hold_several(text)
        if is_several and self._began is None:
            self._began = self._ask()
        try:
            result = action()
        except BaseException:
            if is_several:  # a single one that fails before it reaches the server leaves it idle too
                self._look()
            raise
        self._is_open = True
        self._look()
        return result

    def _may_hold_several(self, text: str) -> bool:
        # SQLite takes several in scripts only, and a pipeline takes one at a time.
        return (
            self._vendor == "postgresql" and not self._raw.pgconn.pipeline_status and _SEVERAL.search(text) is not None
        )

    def is_lost(self) -> bool:
        """Say whether the transaction has ended since the block was entered."""
        self._look()
        return self._ended or (self._began is not None and self._ask() not in (None, self._began))

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has been sent since the block was entered; with SQLite's driver a block begins with BEGIN."""
        return self._watches and not (self._is_open or self._ended) and self._is_idle

    def _look(self) -> None:
        if self._is_idle:
            self._ended = self._ended or self._is_open
        else:
            self._is_open = True

    @property
    def _is_idle(self) -> bool:
        if self._vendor == "postgresql":
            line = self._raw.pgconn
            return line.transaction_status == _IDLE and not line.pipeline_status
        return self._vendor == "sqlite" and not self._raw.in_transaction

    def _ask(self) -> bytes | None:
        """Return when the server's transaction began; None in one that failed, which can commit nothing."""
        if self._raw.pgconn.transaction_status not in (_IDLE, _IN_TRANSACTION):
            return None
        watches, self._watches = self._watches, False
        try:
            found: bytes | None = self._raw.execute(_BEGAN, prepare=False).pgresult.get_value(0, 0)
        finally:
            self._watches = watches
        self._is_open = True
        return found
