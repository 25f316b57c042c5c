"""Exceptions and results that raise when somebody looks at them; in a module that pytest does not look at."""

from __future__ import annotations

import threading
from typing import Any


class NoTextError(Exception):
    """Cannot be shown in any way."""

    def __str__(self) -> str:
        raise SystemExit("no str")

    def __repr__(self) -> str:
        raise KeyboardInterrupt("no repr")


class WrongTextError(Exception):
    """Its text is no text."""

    def __str__(self) -> str:
        return b"bytes"  # type: ignore[return-value]


class TrapMeta(type):
    """Every look at the class raises."""

    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit(f"do not look at {name}")

    def __instancecheck__(cls, instance: object) -> bool:
        raise SystemExit("do not ask")


class TrappedError(Exception, metaclass=TrapMeta):
    """An error whose class cannot be looked at."""


class ChangelingError(Exception):
    """Looking at what it is raises, and so does everything that is read of errors."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise SystemExit("do not look")

    @property
    def response(self) -> Any:
        raise SystemExit("no response")

    @property
    def __notes__(self) -> Any:
        raise SystemExit("no notes")


class HidingGroup(ExceptionGroup[Exception]):
    """A group that hides its members."""

    @property
    def exceptions(self) -> Any:  # type: ignore[override]
        raise SystemExit("nothing to see")


class HoldingError(Exception):
    """Has something that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Mourned:
    """Raises when it is collected."""

    def __del__(self) -> None:
        raise SystemExit("from the grave")


class SlyList(list[int]):
    """A list that raises when it is read."""

    def __iter__(self) -> Any:
        raise SystemExit("not for you")
