"""A job type with a schedule gets a new name: its schedule stays the one that it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Every, job
from django_jobs.define import registry
from django_jobs.define import schedules as declared
from django_jobs.models import Job, Schedule, ScheduleTick
from django_jobs.operate.run_schedule import RunSchedule
from django_jobs.operate.schedule_runner import Looks, announce_schedules
from tests.integration.schedules.conftest import Hands, nothing

pytestmark = pytest.mark.django_db

OLD: dict[str, Any] = {"type": "tests.old"}
NEW: dict[str, Any] = {"type": "tests.new", "aliases": ("tests.old",)}
NEWEST: dict[str, Any] = {"type": "tests.newest", "aliases": ("tests.new", "tests.old")}
HOURLY = Every(timedelta(hours=1))


class Release:
    """The code of one release, in a worker of its own."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.looks = Looks()

    def load(self) -> None:
        """Be the code of this process."""
        for known in (registry._jobs, declared._schedules):
            for name in [name for name in known if name.startswith("tests.")]:
                del known[name]
        job(schedule=HOURLY, **self.options)(nothing)

    def start(self) -> Release:
        """Announce, as a worker that starts does."""
        self.load()
        announce_schedules(using="default")
        return self

    def look(self) -> None:
        """Look once, as its worker does."""
        self.load()
        self.looks.serve(using="default")


@pytest.mark.parametrize("first", ["old", "new"])
def test_rolling_deploy_runs_each_tick_once(hands: Hands, first: str) -> None:
    """Workers of both releases run at the tick: whoever looks first, and whoever has started last."""
    old, new = Release(**OLD).start(), Release(**NEW).start()
    for started_last in (new, old):
        started_last.start()
        hands.move(hours=1)
        for release in (old, new) if first == "old" else (new, old):
            release.look()

    assert (Job.objects.count(), ScheduleTick.objects.count()) == (2, 2)
    assert [row.name for row in Schedule.objects.all()] == ["tests.old"]


def test_due_tick_outlasts_a_stop_of_everything(hands: Hands) -> None:
    """The old release is stopped before the tick, the new one starts after it: the tick runs, once."""
    Release(**OLD).start()
    hands.move(hours=1)
    for options in (NEW, NEWEST):
        Release(**options).start().look()
        assert ScheduleTick.objects.get().schedule_name == "tests.old"

    assert Job.objects.get().job_type == "tests.new"
    assert Schedule.objects.get().job_type == "tests.newest"


def test_release_that_was_taken_back_costs_no_tick(hands: Hands) -> None:
    """The old workers go on half a minute after the tick, as with any schedule of a release that has gone."""
    old = Release(**OLD).start()
    Release(**NEW).start()
    hands.move(hours=1)
    old.look()
    hands.move(seconds=30)
    old.look()
    old.look()

    assert (Job.objects.get().job_type, Schedule.objects.get().job_type) == ("tests.old", "tests.old")


def test_renamed_schedule_is_run_by_hand_under_its_old_row(hands: Hands) -> None:
    """The row is of a release before the rename; the code in front of the operator knows that name too."""
    Release(**OLD).start()
    Release(**NEW).load()

    assert RunSchedule("tests.old", using="default").plan().refused == ""


def test_schedule_keeps_its_name_when_the_alias_goes(hands: Hands) -> None:
    """With ``name=`` it stays the row that it was; its due tick runs."""
    Release(**NEW).start()
    hands.move(hours=1)
    for known in (registry._jobs, declared._schedules):
        for name in ("tests.new", "tests.old"):
            known.pop(name, None)
    declared.schedule(job(type="tests.new")(nothing), HOURLY, name="tests.old")

    assert announce_schedules(using="default") == []
    Looks().serve(using="default")
    assert (Schedule.objects.count(), Job.objects.get().job_type) == (1, "tests.new")
