"""Whether the process that a thread plays is alive. Known to the fakes too, so that a dead one reaches none of them."""

from __future__ import annotations

import threading

_here = threading.local()


class SimulatedCrash(BaseException):
    """The process of this attempt is dead. Whatever still runs of it cannot write, and gets this again if it tries."""


class Life:
    """A process that a thread plays for a while; ``in_effect`` while an operation makes a recorded request."""

    def __init__(self) -> None:
        self.is_dead = False
        self.in_effect = False


def begin(life: Life) -> None:
    """Let this thread play a process."""
    _here.life = life


def end() -> None:
    """Let this thread be the test's again."""
    _here.life = None


def current() -> Life | None:
    """Return the process that this thread plays; None in the test's own code."""
    return getattr(_here, "life", None)


def check_alive() -> None:
    """Refuse to do something in the world for a process that is dead.

    Raises:
        SimulatedCrash: It is.
    """
    life = current()
    if life is not None and life.is_dead:
        raise SimulatedCrash
