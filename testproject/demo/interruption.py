"""Ctrl-C and SIGTERM, noticed wherever they arrive."""

from __future__ import annotations

import signal
from types import TracebackType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """
    Turns both signals into KeyboardInterrupt, and remembers that one came; use it as a context manager.

    The exception alone is not enough: where it arrives inside a function that SQLite calls back, SQLite makes an error
    of its own out of it, and where Python cannot raise, it is dropped.
    """

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._notice) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.came and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came and its exception was lost."""
        if self.came:
            raise KeyboardInterrupt

    def _notice(self, *_: object) -> None:
        self.came = True
        raise KeyboardInterrupt
