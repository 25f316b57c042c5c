"""Resources: what several job types share and may not use without bound, as a provider's API or an old machine.

A resource has a limit (how many jobs that use it run at once) and a rate (how many start in a time), or one of them.
The rate is a token bucket, kept as one instant: when a job could have started that comes behind all that have started.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

MOST = 1_000_000
_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_RATE = re.compile(r"([0-9]{1,7})/([smhd])")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts in a span of time, and how many of them at once after a rest (``burst``)."""

    count: int
    unit: str
    burst: int

    @property
    def spacing(self) -> timedelta:
        """The time between two starts at this rate."""
        return _UNITS[self.unit] / self.count

    @property
    def text(self) -> str:
        """The rate as settings spell it."""
        return f"{self.count}/{self.unit}"

    def _debt(self, behind: datetime | None, now: datetime) -> datetime | None:
        """Return ``behind``, unless this rate cannot have left it: a slower one did, or a clock that was ahead."""
        return None if behind is None or behind > now + self.burst * self.spacing else behind

    def ready(self, behind: datetime | None, now: datetime) -> int:
        """Return how many may start now; ``behind`` is what :meth:`taken` returned last, None at first."""
        behind = self._debt(behind, now)
        if behind is None or behind <= now:
            return self.burst
        missing = -((now - behind) // self.spacing)  # rounded up: a part of a token is none
        return max(0, self.burst - missing)

    def taken(self, behind: datetime | None, now: datetime, many: int) -> datetime:
        """Return the instant to keep after so many have started now."""
        behind = self._debt(behind, now)
        start = now if behind is None else max(behind, now)
        return start + many * self.spacing

    def next_at(self, behind: datetime | None, now: datetime) -> datetime:
        """Return when the next one may start; now, if one may."""
        behind = self._debt(behind, now)
        if behind is None:
            return now
        return max(now, behind - (self.burst - 1) * self.spacing)


def parse_rate(text: object, burst: int | None = None) -> Rate:
    """Read a rate such as ``10/s``, ``100/m``, ``1000/h`` or ``5000/d``.

    Without a ``burst``, so many may start at once as come in a second: one at least.

    Raises:
        ValueError: It is none; the message says what would be.
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or not 1 <= int(found[1]) <= MOST:
        msg = f"must be a number per s, m, h or d, such as '10/s' or '100/m', not {text!r}"
        raise ValueError(msg)
    count, unit = int(found[1]), found[2]
    per_second = count * timedelta(seconds=1) // _UNITS[unit]
    return Rate(count=count, unit=unit, burst=max(1, per_second) if burst is None else burst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What holds for a resource now; None is no bound."""

    limit: int | None = None
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a resource stands at one moment: what runs, and what holds it back."""

    bounds: Bounds
    running: int
    behind: datetime | None = None  # of the token bucket
    paused_until: datetime | None = None

    def room(self, now: datetime) -> int | None:
        """Return how many jobs that use it may start now; None: any number."""
        if self.paused_until is not None and self.paused_until > now:
            return 0
        rooms = []
        if self.bounds.limit is not None:
            rooms.append(max(0, self.bounds.limit - self.running))
        if self.bounds.rate is not None:
            rooms.append(self.bounds.rate.ready(self.behind, now))
        return min(rooms) if rooms else None

    def opens_at(self, now: datetime) -> datetime | None:
        """Return when time alone makes room; now, if there is room, None when a running job must end first."""
        if self.bounds.limit is not None and self.running >= self.bounds.limit:
            return None
        opens = now if self.bounds.rate is None else self.bounds.rate.next_at(self.behind, now)
        return opens if self.paused_until is None else max(opens, self.paused_until)
