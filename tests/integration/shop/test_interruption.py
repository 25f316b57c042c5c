"""Ctrl-C is never lost, wherever it arrives."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import suppress

import pytest

from testproject.demo.interruption import Interruption


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_raises_at_once(number: signal.Signals) -> None:
    """Both signals end the block, and the former handlers are back afterwards."""
    before = signal.getsignal(number)

    with pytest.raises(KeyboardInterrupt), Interruption():
        os.kill(os.getpid(), number)

    assert signal.getsignal(number) is before


def test_signal_inside_a_function_of_sqlite_is_still_an_interruption() -> None:
    """SQLite turns the exception into an error of its own; the block ends as interrupted all the same."""
    db = sqlite3.connect(":memory:")
    db.create_function("stop", 0, lambda: os.kill(os.getpid(), signal.SIGTERM))

    with pytest.raises(KeyboardInterrupt), Interruption():
        db.execute("SELECT stop()")
    db.close()


def test_lost_exception_is_raised_by_the_next_check() -> None:
    """Where the exception was swallowed, the run learns of the signal at its next look, and not before it came."""
    with Interruption() as interruption:
        interruption.check()
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(KeyboardInterrupt):
            interruption.check()
