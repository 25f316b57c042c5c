"""Statements that lost against another transaction: the database asks to run them again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError

T = TypeVar("T")

TRIES = 12
LONGEST_PAUSE = 0.1  # seconds
# serialization_failure, deadlock_detected: nothing was written, and the same statement may succeed now.
_CONTENDED = ("40001", "40P01")


def is_contention(error: BaseException) -> bool:
    """Say whether PostgreSQL refused a statement only because of another transaction."""
    return getattr(error.__cause__, "sqlstate", None) in _CONTENDED


def run_again(statement: Callable[[], T]) -> T:
    """Run a statement that is a transaction of its own; again, a bounded number of times, when it lost against another.

    Raises:
        DatabaseError: As the database raised it, after the last try or for any other reason.
    """
    for turn in range(TRIES - 1):
        try:
            return statement()
        except DatabaseError as error:
            if not is_contention(error):
                raise
        time.sleep(min(0.001 * 2**turn, LONGEST_PAUSE) * random.random())  # noqa: S311  spreads load, guards nothing
    return statement()
