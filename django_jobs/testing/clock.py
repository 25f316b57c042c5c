"""The clock of a test: what the package and the statements of its store take as now."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Self

from django_jobs import clock
from django_jobs.exceptions import KitError


class JobsClock:
    """Goes on by itself from what ``datetime.now()`` says, ahead of it by as much as it was moved.

    Leases, backoff, key lifetimes and due times follow it on both databases. A library that moves ``datetime.now()``
    moves this clock too. Use it as a context manager, or let :class:`JobsKit` do that.
    """

    def __init__(self) -> None:
        self._ahead = timedelta(0)
        self._drive: Callable[[timedelta], object] | None = None
        self._installed: ExitStack | None = None

    def __enter__(self) -> Self:
        """Make it the clock of this process.

        Raises:
            KitError: It is in force already.
        """
        if self._installed is not None:
            msg = "This clock is in force already."
            raise KitError(msg)
        self._installed = ExitStack()
        self._installed.enter_context(clock.override(self.now))
        return self

    def __exit__(self, *_: object) -> None:
        """Put the former clock back."""
        if self._installed is not None:
            self._installed.close()
        self._installed = None

    @classmethod
    def in_force(cls) -> JobsClock | None:
        """Return the one that is the clock of this process, None for none."""
        found = getattr(clock.source(), "__self__", None)
        return found if isinstance(found, JobsClock) else None

    @property
    def is_in_force(self) -> bool:
        """Whether it is the clock of this process."""
        return self._installed is not None

    def now(self) -> datetime:
        """Return the time as an aware UTC datetime."""
        return datetime.now(UTC) + self._ahead

    def tick(self, delta: timedelta) -> datetime:
        """Move on, and return the new time.

        Raises:
            KitError: ``delta`` is no timedelta, or is below zero: databases do not go back.
        """
        if not isinstance(delta, timedelta):
            msg = f"tick() takes a timedelta, not {delta!r}."
            raise KitError(msg)
        if delta < timedelta(0):
            msg = f"The clock does not go back, not by {-delta} either: what is stored would lie in the future."
            raise KitError(msg)
        if self._drive is not None:
            self._drive(delta)
        else:
            self._ahead += delta
        clock.skip(delta.total_seconds())  # what runs meanwhile reckons its own deadlines by that one
        return self.now()

    def move_to(self, moment: datetime) -> datetime:
        """Move on to a time, and return it.

        Raises:
            KitError: ``moment`` is no aware datetime, or is over.
        """
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            msg = f"move_to() takes an aware datetime, not {moment!r}."
            raise KitError(msg)
        return self.tick(moment - self.now())

    def drive(self, move: Callable[[timedelta], object]) -> None:
        """Move by another library from now on, so that ``datetime.now()`` moves along.

        Args:
            move: Takes a timedelta, for example ``shift`` of a traveller of time-machine or ``tick`` of freezegun.
        """
        self._drive = move
