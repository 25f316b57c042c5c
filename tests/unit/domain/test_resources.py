"""The bounds of a resource: a limit, a token bucket kept as one instant, and what holds it back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_jobs.domain.lanes import check_resource
from django_jobs.domain.resources import Bounds, Rate, Standing, parse_rate
from django_jobs.exceptions import KeyFormatError

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "spacing", "burst"),
    [
        ("10/s", timedelta(milliseconds=100), 10),
        ("100/m", timedelta(milliseconds=600), 1),
        ("1000/h", timedelta(seconds=3.6), 1),
        ("5000/d", timedelta(seconds=17.28), 1),
        ("600/m", timedelta(milliseconds=100), 10),
    ],
)
def test_rate_is_read(text: str, spacing: timedelta, burst: int) -> None:
    """A rate names a number and a unit; what comes in a second may start at once."""
    rate = parse_rate(text)
    assert (rate.spacing, rate.burst, rate.text) == (spacing, burst, text)
    assert parse_rate(text, 3).burst == 3


@pytest.mark.parametrize("text", ["", "10", "0/s", "10/x", "-1/s", "1.5/s", "10 /s", "9999999/s", 10, None, "١/s"])
def test_what_is_no_rate_is_refused(text: object) -> None:
    """Nothing is guessed: a rate has a whole number of at least one and a known unit."""
    with pytest.raises(ValueError, match="must be a number per"):
        parse_rate(text)


def test_bucket_gives_its_burst_and_then_the_rate() -> None:
    """After a rest so many start at once as the burst says, then one per spacing, and never more for a longer rest."""
    rate = Rate(count=2, unit="s", burst=3)
    assert rate.ready(None, NOW) == 3
    behind = rate.taken(None, NOW, 3)
    assert rate.ready(behind, NOW) == 0
    assert rate.next_at(behind, NOW) == NOW + timedelta(milliseconds=500)
    assert rate.ready(behind, NOW + timedelta(milliseconds=499)) == 0
    assert rate.ready(behind, NOW + timedelta(milliseconds=500)) == 1
    assert rate.ready(behind, NOW + timedelta(hours=1)) == 3


@given(
    count=st.integers(1, 50),
    burst=st.integers(1, 20),
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 30)), max_size=40),
)
def test_no_window_has_more_starts_than_the_rate_and_one_burst(
    count: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    """Whatever is asked for and when: in each window start rate × length + burst at most."""
    rate, now, behind = Rate(count=count, unit="s", burst=burst), NOW, None
    starts: list[datetime] = []
    for milliseconds, wanted in steps:
        now += timedelta(milliseconds=milliseconds)
        many = min(wanted, rate.ready(behind, now))
        if many:
            behind = rate.taken(behind, now, many)
            starts += [now] * many
    for first, begin in enumerate(starts):
        for last in range(first, len(starts)):
            allowed = (starts[last] - begin) / rate.spacing + burst
            assert last - first + 1 <= allowed + 1e-6


@given(count=st.integers(1, 50), burst=st.integers(1, 20), asked=st.integers(1, 60))
def test_next_start_is_neither_early_nor_late(count: int, burst: int, asked: int) -> None:
    """At the instant that is told one may start, and just before it none."""
    rate = Rate(count=count, unit="s", burst=burst)
    behind = rate.taken(None, NOW, min(asked, burst))
    at = rate.next_at(behind, NOW)
    assert rate.ready(behind, at) >= 1
    assert at == NOW or rate.ready(behind, at - timedelta(microseconds=1)) == 0


@pytest.mark.parametrize(
    ("bounds", "running", "held", "room", "opens"),
    [
        (Bounds(), 99, None, None, NOW),
        (Bounds(limit=3), 1, None, 2, NOW),
        (Bounds(limit=3), 3, None, 0, None),
        (Bounds(limit=3), 5, None, 0, None),
        (Bounds(limit=3, rate=Rate(1, "s", 1)), 0, None, 1, NOW),
        (Bounds(limit=3), 0, NOW + SECOND, 0, NOW + SECOND),
        (Bounds(limit=3), 3, NOW + SECOND, 0, None),
        (Bounds(), 0, NOW - SECOND, None, NOW),
    ],
)
def test_room_of_a_resource(
    bounds: Bounds, running: int, held: datetime | None, room: int | None, opens: datetime | None
) -> None:
    """Each bound alone can close a resource; only time that passes is told as a time."""
    standing = Standing(bounds=bounds, running=running, paused_until=held)
    assert standing.room(NOW) == room
    assert standing.opens_at(NOW) == opens


@pytest.mark.parametrize("name", ["", "!aside", "~waits", "ä", "x" * 101, " a", 7, None])
def test_names_that_cannot_be_lanes_are_refused(name: object) -> None:
    """A resource's name is a lane: short printable ASCII that marks nothing as set aside."""
    with pytest.raises(KeyFormatError):
        check_resource(name)


def test_debt_of_a_slower_rate_is_not_carried_over() -> None:
    """Somebody set 1/d by mistake, one job started, and they set 100/m again: nothing waits for a day."""
    slow, fast = parse_rate("1/d"), parse_rate("100/m")
    behind = slow.taken(None, NOW, 1)
    assert fast.ready(behind, NOW) == 1
    assert fast.next_at(behind, NOW) == NOW
    assert fast.taken(behind, NOW, 1) == NOW + fast.spacing


def test_clock_that_was_ahead_closes_nothing_for_as_long() -> None:
    """The server's clock was an hour ahead when the last one started."""
    rate = parse_rate("100/m")
    assert rate.ready(rate.taken(None, NOW + timedelta(hours=1), 1), NOW) == 1


@pytest.mark.parametrize(("text", "burst"), [("6/s", 6), ("15/s", 15), ("60/s", 60), ("90/m", 1), ("7200/h", 2)])
def test_burst_is_what_comes_in_a_second(text: str, burst: int) -> None:
    """Whole starts, also where the spacing is no whole number of microseconds."""
    assert parse_rate(text).burst == burst
