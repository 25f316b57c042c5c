"""When schedules tick: cron in time zones, equal spans, and what is done about missed ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any

import pytest

from django_jobs.domain.schedules import Cron, Every, Missed, Rule, due
from django_jobs.exceptions import DefinitionError

MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    """Read a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def first(rule: Rule, moment: str, many: int = 3) -> list[str]:
    """Return the next ticks as text."""
    return [f"{tick:%m-%dT%H:%M:%S}" for tick in islice(rule.after(at(moment)), many)]


@pytest.mark.parametrize(
    ("expression", "moment", "expected"),
    [
        # 6:00 in Berlin is 5:00 UTC in winter and 4:00 in summer: once a day at 6:00, whatever the clocks do.
        ("0 6 * * *", "2026-03-28T12:00", ["03-29T04:00:00", "03-30T04:00:00", "03-31T04:00:00"]),
        ("0 6 * * *", "2026-10-24T12:00", ["10-25T05:00:00", "10-26T05:00:00", "10-27T05:00:00"]),
        # 2:30 does not exist on 29 March: right after the gap, at 3:00; on 25 October the first 2:30 alone.
        ("30 2 * * *", "2026-03-28T12:00", ["03-29T01:00:00", "03-30T00:30:00", "03-31T00:30:00"]),
        ("30 2 * * *", "2026-10-24T12:00", ["10-25T00:30:00", "10-26T01:30:00", "10-27T01:30:00"]),
        # Every half hour by real time: none twice, none left out.
        ("*/30 * * * *", "2026-03-29T00:30", ["03-29T01:00:00", "03-29T01:30:00", "03-29T02:00:00"]),
        ("*/30 * * * *", "2026-10-25T00:00", ["10-25T00:30:00", "10-25T01:00:00", "10-25T01:30:00"]),
    ],
)
def test_cron_ticks_by_the_clocks_of_its_zone(expression: str, moment: str, expected: list[str]) -> None:
    """Over both changes of the clocks, as the documentation says."""
    assert first(Cron(expression, timezone="Europe/Berlin"), moment) == expected


def test_tick_of_each_hour_where_clocks_change_by_half_an_hour() -> None:
    """On Lord Howe one tick of a fixed minute is left out at each change; steps of half an hour leave out none."""
    hourly, steps = (Cron(text, timezone="Australia/Lord_Howe") for text in ("30 * * * *", "*/30 * * * *"))

    assert first(hourly, "2026-10-03T14:00") == ["10-03T15:00:00", "10-03T16:30:00", "10-03T17:30:00"]
    assert first(hourly, "2026-04-04T13:30") == ["04-04T14:30:00", "04-04T16:00:00", "04-04T17:00:00"]
    for moment in ("2026-10-03T14:30", "2026-04-04T14:00"):
        half_hours = [at(moment) + timedelta(minutes=30) * count for count in range(1, 5)]
        assert list(islice(steps.after(at(moment)), 4)) == half_hours


@pytest.mark.parametrize(
    "rule",
    [
        *(
            Cron(expression, timezone="Europe/Berlin")
            for expression in ("30 2 * * *", "*/30 * * * *", "0 */2 * * *", "15 2,3 * * 0", "30 1-4 * * *")
        ),
        Every(timedelta(minutes=7), offset=MINUTE),
    ],
    ids=lambda rule: rule.text,
)
@pytest.mark.parametrize("day", ["2026-03-28T00:00", "2026-10-24T00:00"])
def test_last_tick_is_the_last_of_those_that_came(rule: Rule, day: str) -> None:
    """Looking back from any moment finds the tick that looking forward found last, also where clocks change."""
    begin = at(day)
    ticks = list(takewhile(lambda tick: tick < begin + timedelta(days=3), rule.after(begin - timedelta(days=8))))
    for minutes in range(0, 3 * 24 * 60 - 1, 7):
        now = begin + timedelta(minutes=minutes)
        assert rule.before(now) == [tick for tick in ticks if tick <= now][-1]


def test_spans_are_counted_from_the_same_moment_by_everybody() -> None:
    """A tick does not depend on when a worker was started."""
    rule = Every(timedelta(minutes=5), offset=MINUTE)

    assert first(rule, "2026-01-01T00:02:30") == ["01-01T00:06:00", "01-01T00:11:00", "01-01T00:16:00"]
    assert rule.before(at("2026-01-01T00:06:00")) == at("2026-01-01T00:06:00")
    assert rule.before(at("2026-01-01T00:05:59")) == at("2026-01-01T00:01:00")
    assert (rule.text, Every(MINUTE).text) == ("every 300 s + 60 s", "every 60 s")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Cron("* * * *"), "no cron expression of five fields"),
        (lambda: Cron("61 * * * *"), "Bad minute"),
        (lambda: Cron("0 0 31 2 *"), "no cron expression"),
        (lambda: Cron(5), "no cron expression"),
        (lambda: Cron("@daily"), "no cron expression"),
        (lambda: Cron("0 30 * * * *"), "no cron expression of five fields"),
        (lambda: Cron("9" * 5000 + " * * * *"), "at most 300"),
        (lambda: Cron("9" * 250 + " * * * *"), "Bad minute"),
        (lambda: Cron(",".join(["0"] * 150) + " * * * *"), "at most 300"),
        (lambda: Cron("0 6 * * *", timezone="Mars"), "There is no time zone 'Mars'"),
        (lambda: Cron("0 6 * * *", timezone=""), "There is no time zone"),
        (lambda: Cron("0 6 * * *", timezone="../etc/passwd"), "There is no time zone"),
        (lambda: Every(timedelta(milliseconds=1500)), "whole seconds"),
        (lambda: Every(timedelta(0)), "whole seconds"),
        (lambda: Every(timedelta(days=400)), "366 days"),
        (lambda: Every(60), "whole seconds"),
        (lambda: Every(MINUTE, offset=MINUTE), "less than the interval"),
    ],
)
def test_rule_that_cannot_work_is_refused(make: Any, match: str) -> None:
    """With the mend, when it is declared."""
    with pytest.raises(DefinitionError, match=match):
        make()


HOURLY = Every(timedelta(hours=1))


@pytest.mark.parametrize(
    ("missed", "now", "run", "settled"),
    [
        (Missed.COALESCE, "2026-01-01T00:59:59", [], "2026-01-01T00:00"),
        (Missed.COALESCE, "2026-01-01T01:00:00", ["01:00"], "2026-01-01T01:00"),
        (Missed.COALESCE, "2026-01-01T04:30:00", ["04:00"], "2026-01-01T04:00"),
        (Missed.SKIP, "2026-01-01T04:30:00", [], "2026-01-01T04:00"),
        (Missed.SKIP, "2026-01-01T04:00:59", ["04:00"], "2026-01-01T04:00"),
        (Missed.CATCH_UP, "2026-01-01T04:30:00", ["01:00", "02:00", "03:00", "04:00"], "2026-01-01T04:00"),
    ],
)
def test_what_was_missed_is_skipped_coalesced_or_caught_up(
    missed: Missed, now: str, run: list[str], settled: str
) -> None:
    """Each policy runs what it says, and settles the rest."""
    found = due(HOURLY, settled=at("2026-01-01T00:00"), now=at(now), missed=missed)

    assert [f"{tick:%H:%M}" for tick in found.run] == run
    assert found.settled == at(settled)
    assert found.next_tick == at(settled) + timedelta(hours=1)


def test_two_spans_never_have_one_text() -> None:
    """A release is told from another by the text of its rule, also where a span has many seconds."""
    spans = (1_234_567, 1_234_568, 14 * 86_400)
    assert [Every(timedelta(seconds=span)).text for span in spans] == [f"every {span} s" for span in spans]
    assert Every(timedelta(days=100), offset=timedelta(seconds=1_234_567)).text == "every 8640000 s + 1234567 s"


def test_many_ticks_are_caught_up_in_parts() -> None:
    """What is left is due at once, and nothing is lost between two parts."""
    settled, seen = at("2026-01-01T00:00"), []
    for _ in range(3):
        found = due(HOURLY, settled=settled, now=at("2026-01-01T05:30"), missed=Missed.CATCH_UP, most=2)
        seen += [tick.hour for tick in found.run]
        settled = found.settled
    assert seen == [1, 2, 3, 4, 5]
