"""How long any declared time may be: what is longer is a mistake of units, and no database can add it to an instant."""

from __future__ import annotations

from datetime import timedelta

from django_jobs.exceptions import DefinitionError

LONGEST = timedelta(days=3660)


def check_longest(value: timedelta, *, what: str) -> None:
    """Refuse a duration that means "never" in disguise.

    Raises:
        DefinitionError: It is longer than :data:`LONGEST`.
    """
    if value > LONGEST:
        raise DefinitionError(f"{what} is {value}; give at most {LONGEST.days} days.")
