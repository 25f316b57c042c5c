"""Serving schedules: each tick once, by whichever worker, and what a pause, a release or an error does to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobs import Cron, Every, faults
from django_jobs.define import schedules as declared
from django_jobs.exceptions import DefinitionError
from django_jobs.models import Job, JobPayload, Schedule, ScheduleTick
from django_jobs.operate.schedule_runner import announce_schedules
from django_jobs.operate.schedule_status import schedule_statuses
from django_jobs.store.pauses import pause, resume
from tests.integration.schedules.conftest import START, Hands, nothing, turn

pytestmark = pytest.mark.django_db

Declare = Callable[..., Any]
MINUTELY = Every(timedelta(minutes=1))


def with_tick(tick: datetime, note: str = "") -> None:
    """Take the tick."""


def needs(order_id: int) -> None:
    """Take what no schedule knows by itself."""


def ticks() -> list[tuple[str, str]]:
    """Return the ticks that were run, and what came of them."""
    return [(f"{row.tick:%H:%M:%S}", row.outcome) for row in ScheduleTick.objects.order_by("tick")]


def test_each_tick_enqueues_one_job(scheduled: Declare, hands: Hands) -> None:
    """A tick is served when it is over, once; the next look comes with the next tick."""
    scheduled(MINUTELY)

    assert (turn(), Job.objects.count()) == (5.0, 0)
    hands.move(seconds=28)
    assert turn() == 2.0
    hands.move(seconds=2)
    turn()
    turn()

    assert ticks() == [("12:01:00", "enqueued")]
    row = Schedule.objects.get()
    assert (row.last_job_id, row.next_tick) == (Job.objects.get().pk, START + timedelta(seconds=90))


def test_new_schedule_begins_now(scheduled: Declare, hands: Hands) -> None:
    """No tick from before its declaration is run, whatever its policy."""
    scheduled(MINUTELY, missed="catch_up")
    turn()
    assert ticks() == []


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("skip", []),
        ("coalesce", ["12:05:00"]),
        ("catch_up", ["12:01:00", "12:02:00", "12:03:00", "12:04:00", "12:05:00"]),
    ],
)
def test_ticks_that_no_worker_saw(scheduled: Declare, hands: Hands, missed: str, expected: list[str]) -> None:
    """After a stop of all workers each policy runs what it says, and then goes on as if nothing had been."""
    scheduled(MINUTELY, missed=missed, grace=timedelta(seconds=10))
    hands.move(minutes=5)
    turn()
    assert [tick for tick, _ in ticks()] == expected
    hands.move(seconds=31)
    turn()
    assert [tick for tick, _ in ticks()] == [*expected, "12:06:00"]


def test_skipped_tick_is_in_the_log(scheduled: Declare, hands: Hands, caplog: pytest.LogCaptureFixture) -> None:
    """It leaves no row and no job: whoever misses it finds when it was, and how late the first look at it came."""
    scheduled(MINUTELY, missed="skip")
    hands.move(seconds=30)
    turn()
    assert "skipped" not in caplog.text
    scheduled(Every(timedelta(hours=1)), missed="skip", type="tests.hourly", grace=timedelta(seconds=10))
    hands.now = datetime(2026, 3, 1, 13, 0, 11, tzinfo=UTC)
    turn()
    turn()
    told = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    assert told == [
        "Tick 2026-03-01 13:00:00+00:00 of the schedule tests.hourly was skipped: 0:00:11 late, with a grace of 0:00:10"
    ]


def test_job_gets_its_tick_or_what_is_made_of_it(scheduled: Declare, hands: Hands) -> None:
    """A parameter named tick gets it; arguments= makes the payload of it."""
    scheduled(MINUTELY, with_tick, type="tests.takes_tick")
    scheduled(MINUTELY, needs, type="tests.needs", arguments=lambda tick: {"order_id": tick.minute})
    hands.move(seconds=30)
    turn()
    stored = sorted(JobPayload.objects.values_list("arguments", flat=True))
    assert stored == ['{"note":"","tick":"2026-03-01T12:01:00.000000Z"}', '{"order_id":1}']


def test_key_of_a_tick_is_the_ticks_own_unless_the_type_has_one(scheduled: Declare, hands: Hands) -> None:
    """A job type with a key keeps its meaning: a tick whose key is live is a duplicate, and is told so."""
    scheduled(MINUTELY, job={"key": "only-one"})
    for _ in range(2):
        hands.move(seconds=60)
        turn()
    assert ticks() == [("12:01:00", "enqueued"), ("12:02:00", "duplicate")]
    assert Job.objects.count() == 1


def test_paused_schedule_makes_nothing_up(scheduled: Declare, hands: Hands) -> None:
    """Ticks that fall into a pause are gone; afterwards it goes on."""
    scheduled(MINUTELY, missed="catch_up")
    pause("schedule", "tests.scheduled", actor="ann", reason="month's end", using="default")
    hands.move(minutes=3)
    turn()
    assert (ticks(), schedule_statuses(using="default")[0].pause.actor) == ([], "ann")  # type: ignore[union-attr]
    resume("schedule", "tests.scheduled", actor="ann", using="default")
    turn()
    hands.move(minutes=1)
    turn()
    assert ticks() == [("12:04:00", "enqueued")]


def test_error_in_the_arguments_stops_no_other_schedule(scheduled: Declare, hands: Hands) -> None:
    """The tick is recorded as refused with the error, the owner is told, and the others go on."""
    scheduled(MINUTELY, needs, type="tests.bad", arguments=lambda tick: {"order_id": 1 / 0})
    scheduled(MINUTELY, type="tests.good")
    hands.move(minutes=1)
    turn()
    bad = ScheduleTick.objects.get(schedule_name="tests.bad")
    assert (bad.outcome, bad.message) == ("refused", "ZeroDivisionError: division by zero")
    assert ScheduleTick.objects.get(schedule_name="tests.good").outcome == "enqueued"
    turn()
    assert ScheduleTick.objects.count() == 2


def test_changed_rule_begins_now_and_older_code_leaves_it_alone(scheduled: Declare, hands: Hands) -> None:
    """The release that announced last serves it; a worker of the other one neither ticks nor takes it back."""
    old = scheduled(MINUTELY)
    scheduled(Every(timedelta(minutes=10)))
    hands.move(minutes=2)
    turn()
    assert ticks() == []
    declared._schedules[old.name] = old
    assert "workers of another release serve it" in schedule_statuses(using="default")[0].note
    hands.move(minutes=9)
    turn()
    assert ticks() == []
    scheduled(Every(timedelta(minutes=10)))
    turn()
    assert ticks() == [("12:10:00", "enqueued")]


def test_announcing_again_changes_nothing(scheduled: Declare, hands: Hands) -> None:
    """A worker that starts in the middle moves no tick."""
    scheduled(MINUTELY)
    before = Schedule.objects.values().get()
    hands.move(minutes=1)
    assert announce_schedules(using="default") == []
    assert Schedule.objects.values().get() == before


def test_schedule_that_nobody_serves_says_so(scheduled: Declare, hands: Hands) -> None:
    """Half a minute after its tick, and when this code does not know it."""
    one = scheduled(MINUTELY)
    assert schedule_statuses(using="default")[0].note == ""
    hands.move(minutes=2)
    assert "no worker runs whose code declares it" in schedule_statuses(using="default")[0].note
    turn()
    declared.forget_schedule(one.name)
    assert "does not declare it" in schedule_statuses(using="default")[0].note


def test_crash_between_tick_and_commit_leaves_the_tick_due(scheduled: Declare, hands: Hands) -> None:
    """Tick, job and next tick are one transaction."""
    scheduled(MINUTELY)
    hands.move(minutes=1)

    def crash(_: str) -> None:
        raise KeyboardInterrupt

    with faults.armed("schedule.after_insert", crash) as fired, pytest.raises(KeyboardInterrupt):
        turn()
    assert fired()
    assert (ticks(), Job.objects.count()) == ([], 0)
    turn()
    assert ticks() == [("12:01:00", "enqueued")]


def test_schedules_over_a_day_on_which_clocks_change(scheduled: Declare, hands: Hands) -> None:
    """06:00 in Berlin ticks once on each day, by its clocks; half-hourly ticks are 46 on the short day."""
    hands.now = datetime(2026, 3, 28, 22, 0, 1, tzinfo=UTC)
    scheduled(Cron("0 6 * * *", timezone="Europe/Berlin"), type="tests.daily")
    scheduled(Cron("*/30 * * * *", timezone="Europe/Berlin"), type="tests.half_hourly")
    for _ in range(24 * 2 * 2):
        hands.move(minutes=30)
        turn()
    daily = ScheduleTick.objects.filter(schedule_name="tests.daily").order_by("tick")
    assert [f"{row.tick:%d %H:%M}" for row in daily] == ["29 04:00", "30 04:00"]
    half = list(ScheduleTick.objects.filter(schedule_name="tests.half_hourly").values_list("tick", flat=True))
    assert len(half) == len(set(half)) == 96
    short_day = (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC))
    assert sum(short_day[0] <= tick < short_day[1] for tick in half) == 46


@pytest.mark.parametrize(
    ("declare", "match"),
    [
        (lambda: declared.schedule(nothing, MINUTELY), "what @job leaves"),  # type: ignore[arg-type]
        (lambda: declared.schedule(handler(nothing), 5), "a Cron"),  # type: ignore[arg-type]
        (lambda: declared.schedule(handler(nothing), MINUTELY, missed="never"), "'skip', 'coalesce' or 'catch_up'"),
        (lambda: declared.schedule(handler(nothing), MINUTELY, grace=5), "grace"),  # type: ignore[arg-type]
        (lambda: declared.schedule(handler(needs), MINUTELY), "must say what 'order_id' is"),
    ],
)
def test_declaration_that_cannot_work_is_refused(declare: Callable[[], Any], match: str) -> None:
    """When the code is loaded, with the mend."""
    with pytest.raises(DefinitionError, match=match):
        declare()


def handler(function: Callable[..., None]) -> Any:
    """Make a job type of a function."""
    from django_jobs import job

    return job(type=f"tests.{function.__name__}")(function)


def test_decorator_declares_a_schedule_too() -> None:
    """schedule= of @job takes a rule, or the text of a cron expression in the project's zone."""
    from django_jobs import job

    job(type="tests.decorated", schedule="0 6 * * *")(nothing)
    found = declared.find_schedule("tests.decorated")
    assert found is not None
    assert found.text == "cron 0 6 * * * (UTC)"


def test_arguments_that_are_no_dict_are_refused(scheduled: Declare, hands: Hands) -> None:
    """The tick says what was wrong."""
    scheduled(MINUTELY, needs, type="tests.list", arguments=lambda tick: [tick])
    hands.move(minutes=1)
    turn()
    assert "must return a dict" in ScheduleTick.objects.get().message


def test_full_queue_does_not_lose_a_tick(scheduled: Declare, hands: Hands, settings: Any) -> None:
    """What the package has promised to run is exempt from back-pressure."""
    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "QUEUES": {"default": {"capacity": 1}}}
    scheduled(Every(timedelta(seconds=1)), missed="catch_up")
    hands.move(seconds=3)
    turn()
    assert Job.objects.count() == 3
    assert json.loads(JobPayload.objects.first().arguments) == {}  # type: ignore[union-attr]
