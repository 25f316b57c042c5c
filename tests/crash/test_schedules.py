"""A worker that is hit while it runs a tick: the tick, its job and the next tick are all there or all not, and once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import InterfaceError, InternalError, OperationalError, connection

from django_jobs import clock, faults
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.faults.kinds import KINDS, InjectedError
from django_jobs.models import Job, Schedule, ScheduleTick
from django_jobs.operate.schedule_runner import announce_schedules, serve
from tests.acceptance.workers import ROOT
from tests.crash.schedules import declare

pytestmark = pytest.mark.django_db(transaction=True)

POINT = "schedule.after_insert"
ERRORS = (InjectedError, OperationalError, InterfaceError, InternalError)


@pytest.fixture
def due_tick() -> None:
    """One tick that is due by the real clock, a day's first second, and that nobody has served."""
    declare()
    announce_schedules(using="default")
    midnight = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    Schedule.objects.update(settled_at=midnight - timedelta(seconds=1), next_tick=midnight)


def assert_untouched() -> None:
    """Nothing is there of the tick, and it is due."""
    row = Schedule.objects.get()
    assert row.next_tick is not None
    assert row.next_tick - row.settled_at == timedelta(seconds=1)
    assert (ScheduleTick.objects.count(), Job.objects.count()) == (0, 0)


def assert_once() -> None:
    """Another look runs it, and one more finds nothing to do."""
    serve(using="default")
    serve(using="default")
    assert (ScheduleTick.objects.get().outcome, Job.objects.count()) == ("enqueued", 1)


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["lose_request", "lose_reply", "terminate"])
def test_look_that_lost_its_connection(due_tick: None, kind: str) -> None:
    """What was lost is run by the next look; what was committed is not run again."""
    with faults.armed(POINT, KINDS[kind]) as fired, suppress(*ERRORS):
        serve(using="default")
    assert fired()
    connection.close()
    assert_once()


@pytest.mark.long
def test_killed_look(due_tick: None, database_url: str, tmp_path: Path) -> None:
    """A worker that dies inside has stored neither tick nor job, and the tick is due for any other."""
    marker = tmp_path / "fired"
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        VARIABLE: Fault(point=POINT, kind="kill", marker=str(marker)).to_json(),
    }
    command = [sys.executable, "-m", "tests.crash.scheduler"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=60)
    assert (ended.returncode, marker.exists()) == (-signal.SIGKILL, True)
    assert_untouched()
    assert_once()


def test_look_that_raised_inside(due_tick: None) -> None:
    """An error of the database inside a tick leaves it due; nothing of it is stored."""

    def broken(_: str) -> None:
        raise OperationalError("the server closed the connection")

    with faults.armed(POINT, broken) as fired:
        assert serve(using="default") == 1.0
    assert fired()
    assert_untouched()
    assert_once()
