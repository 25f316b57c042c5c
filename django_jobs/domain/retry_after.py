"""The header Retry-After in all its forms: how long another service asks to wait."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

LONGEST_WISH = timedelta(days=3660)  # beyond this it is nonsense; it is kept finite so that sums cannot overflow
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FLAGS = re.VERBOSE | re.IGNORECASE | re.ASCII
_WISH = re.compile(
    r"""
    (?: [a-z]{3,9},\ +                                                    # Sun, 06 Nov 1994 08:49:37 GMT
        (?P<day>\d{1,2})[ -](?P<month>[a-z]{3})[ -](?P<year>\d{4}|\d{2})\ +  # Sunday, 06-Nov-94 08:49:37 GMT
        (?P<time>\d{2}:\d{2}:\d{2})\ +(?:GMT|UTC|[+-]0000)
    |   [a-z]{3}\ +                                                       # Sun Nov  6 08:49:37 1994
        (?P<month2>[a-z]{3})\ +(?P<day2>\d{1,2})\ +(?P<time2>\d{2}:\d{2}:\d{2})\ +(?P<year2>\d{4})
    |   (?P<seconds>\d+(?:\.\d+)?)
    )
    (?:[ \t]*,[ \t]*|$)
    """,
    _FLAGS,
)


def parse_retry_after(text: str, *, now: datetime) -> timedelta | None:
    """Read a Retry-After header: seconds, or a date in one of the three forms of HTTP.

    A date in the past means at once. A header that was sent several times, which clients join with commas, means the
    longest of its wishes. Anything else (empty, negative, another form or zone) is nonsense and means None; a wish is
    never longer than :data:`LONGEST_WISH`.
    """
    text = text.strip(" \t")
    wishes: list[timedelta] = []
    place = 0
    while place < len(text):
        found = _WISH.match(text, place)
        wish = _one(found, now) if found else None
        if found is None or wish is None:
            return None
        wishes.append(wish)
        place = found.end()
    return max(wishes, default=None)


def _one(found: re.Match[str], now: datetime) -> timedelta | None:
    if found["seconds"]:
        return timedelta(seconds=min(float(found["seconds"]), LONGEST_WISH.total_seconds()))
    day, month, year, time = (found[name] or found[f"{name}2"] for name in ("day", "month", "year", "time"))
    hour, minute, second = map(int, time.split(":"))
    try:
        number = _MONTHS.index(month.lower()) + 1
        moment = datetime(_full(year, now), number, int(day), hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return min(max(moment - now, timedelta(0)), LONGEST_WISH)


def _full(year: str, now: datetime) -> int:
    """Return the year; one of two digits that seems more than 50 years ahead is of the century before."""
    if len(year) == 4:
        return int(year)
    full = now.year // 100 * 100 + int(year)
    return full - 100 if full > now.year + 50 else full
