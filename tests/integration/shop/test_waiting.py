"""Waits that end, and say what they waited for."""

from __future__ import annotations

import pytest

from testproject.demo.errors import DemoError
from testproject.demo.waiting import Patience


def test_wait_returns_what_was_found() -> None:
    """The first answer that is something ends the wait; the run's tick is called before each further look."""
    answers, ticks = iter([None, "", "found"]), []
    patience = Patience(seconds=10, tick=lambda: ticks.append(1))

    assert patience.until("an answer", lambda: next(answers), seconds=5) == "found"
    assert len(ticks) == 2


def test_wait_in_vain_names_what_it_waited_for() -> None:
    """A wait that ends with its own limit says so."""
    with pytest.raises(DemoError, match=r"Waited 0\.1 s for the moon to fall, in vain\."):
        Patience(seconds=10).until("the moon to fall", lambda: None, seconds=0.1)


def test_wait_ends_with_the_run() -> None:
    """No wait outlives the time of the whole run."""
    with pytest.raises(DemoError, match=r"whole run may take 0\.1 s.*the moon to fall"):
        Patience(seconds=0.1).until("the moon to fall", lambda: None, seconds=60)


def test_error_of_a_tick_ends_the_wait() -> None:
    """A worker that died while something was waited for is told at once."""

    def tick() -> None:
        raise DemoError("Worker demo-south ended.")

    with pytest.raises(DemoError, match="demo-south ended"):
        Patience(seconds=10, tick=tick).until("the moon to fall", lambda: None, seconds=5)
