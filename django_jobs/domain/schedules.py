"""When a schedule ticks, by cron expressions in a time zone or in equal spans, and what is done about missed ticks.

A tick is an instant, whole in seconds, that the rule alone decides, so that every worker means the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import dropwhile, islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from django_jobs.exceptions import DefinitionError

SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=366)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GRACE = timedelta(minutes=1)
LEAST_GRACE = timedelta(seconds=10)  # workers look every five seconds: below it, skip might never run a tick
TEXT_LIMIT = 300  # signs of a rule as it is stored
FIELDS = 5  # of a cron expression
AT_ONCE = 100  # ticks that are caught up in one transaction


class Missed(StrEnum):
    """What becomes of ticks that passed while no worker ran, or while the schedule could not be served."""

    SKIP = "skip"
    COALESCE = "coalesce"
    CATCH_UP = "catch_up"


@dataclass(frozen=True, slots=True)
class Every:
    """A tick every ``interval``, counted from 1970 in UTC, so that all workers agree; ``offset`` shifts all of them.

    Raises:
        DefinitionError: The interval is shorter than a second or longer than a year, or not whole in seconds.
    """

    interval: timedelta
    offset: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        whole = isinstance(self.interval, timedelta) and self.interval.microseconds == 0
        if not whole or not SHORTEST <= self.interval <= LONGEST:
            msg = f"Every() takes whole seconds from one second to {LONGEST.days} days, not {self.interval!r}."
            raise DefinitionError(msg)
        whole = isinstance(self.offset, timedelta) and self.offset.microseconds == 0
        if not whole or not timedelta(0) <= self.offset < self.interval:
            msg = f"The offset of Every() must be whole seconds, less than the interval, not {self.offset!r}."
            raise DefinitionError(msg)

    @property
    def text(self) -> str:
        """The rule as it is stored and shown."""
        shifted = f" + {self.offset // SHORTEST} s" if self.offset else ""
        return f"every {self.interval // SHORTEST} s{shifted}"

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after a moment."""
        count = (moment - EPOCH - self.offset) // self.interval
        while True:
            count += 1
            yield EPOCH + self.offset + count * self.interval

    def before(self, moment: datetime) -> datetime:
        """Return the last tick that is not after a moment."""
        return EPOCH + self.offset + ((moment - EPOCH - self.offset) // self.interval) * self.interval


@dataclass(frozen=True, slots=True)
class Cron:
    """Ticks by a cron expression of five fields, as the clocks of a time zone show them.

    Where clocks go forward, a tick of a fixed hour that does not exist comes right after the gap; where they go back, a
    tick of a fixed hour comes once, the first time. Ticks with ``*`` as their hour come by real time, none twice; only
    where clocks change by half an hour is one of a fixed minute left out at each change.

    Raises:
        DefinitionError: The expression or the time zone is none, the expression has no date that exists, or it is too
            long to be stored (300 signs with its time zone).
    """

    expression: str
    timezone: str = "UTC"
    _zone: ZoneInfo = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "_zone", ZoneInfo(self.timezone))
        except (ValueError, TypeError, OSError, LookupError):  # a name that is none, in whichever way
            msg = f"There is no time zone {self.timezone!r}; an example is 'Europe/Berlin'."
            raise DefinitionError(msg) from None
        if isinstance(self.expression, str) and len(self.text) > TEXT_LIMIT:
            msg = (
                f"The cron expression {self.expression[:40]!r}… is too long: with its time zone it may have at most "
                f"{TEXT_LIMIT} signs, and it has {len(self.text)}. Ranges and steps (0-59, */2) say more in less."
            )
            raise DefinitionError(msg)
        if why := self._fault():
            msg = f"{self.expression!r} is no cron expression of five fields, such as '0 6 * * MON-FRI': {why}."
            raise DefinitionError(msg)

    def _fault(self) -> str:
        """Say what is wrong with the expression; cronsim alone would take a sixth field, of seconds."""
        if not isinstance(self.expression, str):
            return "it is no text"
        if (many := len(self.expression.split())) != FIELDS:
            return f"it has {many}"
        try:
            next(CronSim(self.expression, datetime(2000, 1, 1, tzinfo=self._zone)))
        except (CronSimError, StopIteration) as error:
            return str(error) or "it has no date that exists"
        return ""

    @property
    def text(self) -> str:
        """The rule as it is stored and shown."""
        return f"cron {' '.join(self.expression.split())} ({self.timezone})"

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the ticks after a moment, in UTC."""
        ticks = map(_in_utc, CronSim(self.expression, moment.astimezone(self._zone)))
        return dropwhile(lambda tick: tick <= moment, ticks)

    def before(self, moment: datetime) -> datetime | None:
        """Return the last tick that is not after a moment; None if there was none for fifty years."""
        start = (moment + timedelta(minutes=1)).astimezone(self._zone)
        ticks = map(_in_utc, CronSim(self.expression, start, reverse=True))
        about = next(dropwhile(lambda tick: tick > moment, ticks), None)
        return None if about is None else self._exact(about, moment)

    def _exact(self, about: datetime, moment: datetime) -> datetime:
        """Go forwards: backwards, the two days on which clocks change are read otherwise."""
        ticks = takewhile(lambda tick: tick <= moment, self.after(about - timedelta(days=1)))
        return [about, *ticks][-1]


def _in_utc(tick: datetime) -> datetime:
    return tick.astimezone(UTC)


Rule = Cron | Every


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What to do now: the ticks to run, up to where all is settled, and when to look again."""

    run: tuple[datetime, ...]
    settled: datetime
    next_tick: datetime | None


def due(
    rule: Rule, *, settled: datetime, now: datetime, missed: Missed, grace: timedelta = GRACE, most: int = AT_ONCE
) -> Due:
    """Say which ticks after ``settled`` run now.

    Args:
        rule: When it ticks.
        settled: Up to here every tick was run or given up.
        now: The present.
        missed: ``skip`` runs the last tick if it is at most ``grace`` late, ``coalesce`` the last one however late,
            ``catch_up`` each, the oldest first.
        grace: How late a tick is still on time.
        most: How many are caught up at once; what is left is due at once.
    """
    first = next(rule.after(settled), None)
    if first is None or first > now:
        return Due(run=(), settled=settled, next_tick=first)
    if missed is Missed.CATCH_UP:
        return _caught_up(rule, settled, now, most)
    last = rule.before(now)
    last = first if last is None or last < first else last
    on_time = missed is Missed.COALESCE or now - last <= grace
    return Due(run=(last,) if on_time else (), settled=last, next_tick=next(rule.after(last), None))


def _caught_up(rule: Rule, settled: datetime, now: datetime, most: int) -> Due:
    ticks = tuple(islice(takewhile(lambda tick: tick <= now, rule.after(settled)), most))
    return Due(run=ticks, settled=ticks[-1], next_tick=next(rule.after(ticks[-1]), None))
