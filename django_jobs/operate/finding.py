"""A finding of the doctor, and what every look is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django_jobs.conf import JobsSettings

NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that will bite (``warning``) or is good to know (``info``), and what mends it."""

    id: str
    level: Literal["warning", "info"]
    text: str
    mend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a look needs: the database, its time, the settings, and how long is long for an atomic handler."""

    using: str
    now: datetime
    rules: JobsSettings
    long: timedelta


Look = Callable[[Surroundings], Iterable[Finding]]


def warning(name: str, text: str, mend: str) -> Finding:
    """Return a finding that asks for something to be done."""
    return Finding(id=name, level="warning", text=text, mend=mend)


def info(name: str, text: str, mend: str = "") -> Finding:
    """Return a finding that only tells."""
    return Finding(id=name, level="info", text=text, mend=mend)


def some(names: Iterable[object]) -> str:
    """Write the first names of a list, and how many more there are."""
    listed = [str(name) for name in names]
    more = f" and {len(listed) - NAMES_SHOWN} more" if len(listed) > NAMES_SHOWN else ""
    return ", ".join(listed[:NAMES_SHOWN]) + more
