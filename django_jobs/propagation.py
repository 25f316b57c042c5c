"""Propagators: what of the present moment a job carries to its handler, such as the active language.

``DJANGO_JOBS["CONTEXT"]`` names them. Language and time zone are here; a project writes those of its tenant or user.
"""

from __future__ import annotations

import zoneinfo
from abc import abstractmethod
from contextlib import AbstractContextManager
from datetime import timedelta
from datetime import timezone as fixed_timezone
from typing import Any, Protocol

from django.utils import timezone, translation

MINUTE = timedelta(minutes=1)


class Propagator(Protocol):
    """One thing that jobs carry. It is made once per process, without arguments, and used by all threads.

    ``name`` is stored with each job: a propagator that is renamed does not find its former values.
    """

    name: str

    @abstractmethod
    def capture(self) -> Any:
        """Return what is active now as a JSON value, or None for nothing; called once per enqueue, before any SQL."""

    @abstractmethod
    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Return a context manager inside which ``value`` is active; the handler runs in it."""


class Language(Propagator):
    """The active language."""

    name = "language"

    def capture(self) -> str | None:
        """Return its code; None where translations are switched off."""
        return translation.get_language()

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Activate it for the handler.

        Raises:
            ValueError: The value is no text.
        """
        if not isinstance(value, str):
            msg = f"A language is a text such as 'de', not {type(value).__name__}."
            raise ValueError(msg)
        return translation.override(value)


class TimeZone(Propagator):
    """The current time zone: its name, or the minutes that a fixed one is ahead of UTC."""

    name = "time_zone"

    def capture(self) -> str | int | None:
        """Return the name of the current time zone.

        Raises:
            ValueError: It has none that another process could know.
        """
        current = timezone.get_current_timezone()
        if isinstance(current, zoneinfo.ZoneInfo) and current.key:
            return current.key
        if isinstance(current, fixed_timezone) and not (ahead := current.utcoffset(None)) % MINUTE:
            return ahead // MINUTE
        msg = f"The current time zone, {current!r}, has no name in the time zone database."
        raise ValueError(msg)

    def restore(self, value: Any) -> AbstractContextManager[Any]:
        """Activate it for the handler.

        Raises:
            ValueError: There is no such time zone.
        """
        try:
            zone = timezone.get_fixed_timezone(value) if isinstance(value, int) else zoneinfo.ZoneInfo(value)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            msg = f"There is no time zone {value!r} here."
            raise ValueError(msg) from error
        return timezone.override(zone)
