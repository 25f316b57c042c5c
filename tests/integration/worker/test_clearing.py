"""What a child does about rows that cannot run: pauses, unknown kinds, kinds of other workers, useless and starved jobs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_jobs import clock
from django_jobs.domain.lanes import lane_of
from django_jobs.models import Job, Pause
from django_jobs.store.pauses import pause, resume
from django_jobs.worker import claiming, clearing
from django_jobs.worker.claiming import Claimer
from tests.factories import JobFactory, WorkerFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, claimer
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)
GONE = "gone.away 1"


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at everything in each round, not once a second."""
    for name in ("EVERY", "TAKE_UP_EVERY"):
        monkeypatch.setattr(clearing, name, 0.0)
    monkeypatch.setattr(claiming, "LOOK_FOR_SUSPECTS_EVERY", 0.0)


@pytest.fixture
def take(declare: Declare) -> Callable[..., list[Any]]:
    """Claim with one claimer that knows the test's type; returns the ids of the jobs."""
    declare(lambda: None)
    one = claimer()

    def taken(free: int = 1, running: int = 0) -> list[Any]:
        return [attempt.claimed.job_id for attempt in one.take(free, running)]

    taken.claimer = one  # type: ignore[attr-defined]
    return taken


def _mine(**values: Any) -> Job:
    job: Job = JobFactory(job_type=JOB_TYPE, **values)
    return job


def _hold(kind: str, name: str) -> Pause:
    return pause(kind, name, actor="ann", reason="why", using="default")


def test_f26_unknown_type_is_set_aside_and_taken_up_r55(take: Any) -> None:
    """R55: what nobody knows moves out of the way, and runs as soon as a worker announces it."""
    strange = JobFactory(job_type="gone.away", priority=9)
    mine = _mine()
    with Told() as told:
        assert take(2) == [mine.pk]

    strange.refresh_from_db()
    assert (strange.state, strange.lane) == ("scheduled", lane_of(GONE))
    assert told.named("job.defer") == [{"kind": GONE, "count": 1}]

    WorkerFactory(kinds=json.dumps([GONE]))
    take(2)

    strange.refresh_from_db()
    assert (strange.state, strange.lane) == ("queued", "")


def test_type_of_another_live_worker_is_left_alone(take: Any) -> None:
    """A worker with other code has its jobs where it looks for them."""
    WorkerFactory(kinds=json.dumps([GONE]))
    strange = JobFactory(job_type="gone.away", priority=9)
    mine = _mine()
    before = Job.objects.filter(pk=strange.pk).values().get()

    assert take(2) == [mine.pk]
    assert Job.objects.filter(pk=strange.pk).values().get() == before


@pytest.mark.parametrize("kind", ["queue", "type"])
def test_nothing_of_a_pause_starts_until_it_ends(take: Any, kind: str) -> None:
    """A paused queue's jobs stay where they are, a paused type's move aside; after the pause both start in their order."""
    name = "default" if kind == "queue" else JOB_TYPE
    _hold(kind, name)
    jobs = [_mine(available_at=clock.now() - ago * SECOND) for ago in (9, 5)]
    jobs.append(_mine(scheduled=True, available_at=clock.now() - SECOND))

    assert take(5) == []
    assert take(5) == []
    if kind == "type":
        assert set(Job.objects.values_list("state", "lane")) == {("scheduled", lane_of(f"{JOB_TYPE} 1"))}
    else:
        assert set(Job.objects.values_list("lane", flat=True)) == {""}

    resume(kind, name, actor="ann", using="default")
    assert take(5) == [job.pk for job in jobs]


def test_pause_of_a_type_does_not_hold_its_neighbours(take: Any) -> None:
    """Jobs of other types in the same queue go on in the same round."""
    _hold("type", "tests.other")
    for _ in range(30):
        JobFactory(job_type="tests.other", priority=5)
    WorkerFactory(kinds='["tests.other 1"]')
    mine = _mine()

    assert take(1) == [mine.pk]


def test_suspect_of_a_paused_type_holds_no_room(take: Any) -> None:
    """A job that must run alone and may not start keeps nobody waiting."""
    _mine(suspect=True)
    _hold("type", JOB_TYPE)
    assert take(1, running=1) == []

    resume("type", JOB_TYPE, actor="ann", using="default")
    _mine()
    assert take(1, running=1) == [], "now the suspect waits for an empty child"


def test_drained_counts_neither_paused_nor_set_aside(take: Any) -> None:
    """A worker that ends when nothing is left does not wait for what it may not start."""
    JobFactory(job_type="gone.away")
    _mine()
    _hold("type", JOB_TYPE)

    assert take(5) == []
    assert take.claimer.is_nothing_left()
    resume("type", JOB_TYPE, actor="ann", using="default")
    take(0)
    assert not take.claimer.is_nothing_left()


def test_useless_head_is_cleared(take: Any) -> None:
    """Jobs whose usefulness is over do not hide what stands behind them."""
    for _ in range(5):
        _mine(priority=5, useful_until=clock.now() - SECOND)
    mine = _mine()

    assert take(2) == [mine.pk]
    assert Job.objects.filter(state="dead_lettered", dead_reason="expired").count() == 5


@pytest.mark.postgres
def test_worker_looks_behind_rows_of_others(
    take: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A head full of another worker's jobs is stepped over, told once, and left behind when it is gone."""
    WorkerFactory(kinds='["tests.other 1"]')
    monkeypatch.setattr(clearing, "LOOK", 2000)
    JobFactory.create_batch(205, job_type="tests.other", priority=5)
    jobs = [_mine(available_at=clock.now() - ago * SECOND) for ago in (9, 5, 1)]
    with caplog.at_level(logging.WARNING, "django_jobs.worker"), Told() as told:
        assert take(1) == [jobs[0].pk]
        assert take(1) == [jobs[1].pk]

    assert Job.objects.filter(job_type="tests.other", state="queued").count() == 205
    assert told.named("claim.foreign") == [{"queue_name": "default", "kinds": ["tests.other 1"]}]
    assert len([record for record in caplog.records if "looking behind them" in record.message]) == 1

    high = _mine(priority=99)
    assert take(1) == [high.pk], "the head is still looked at first"
    Job.objects.filter(job_type="tests.other").delete()
    assert take(2) == [jobs[2].pk]
    assert take(1) == []
    assert take.claimer._clearing.beyond == {}


@pytest.mark.postgres
def test_walk_goes_on_over_several_looks(take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows of others stand in front, a bounded part of them is passed per round, and the place is kept."""
    from tests.plans.backlog import add

    WorkerFactory(kinds='["tests.other 1"]')
    monkeypatch.setattr(clearing, "LOOKS", 2)
    add(9_000, job_type="'tests.other'", priority="5")
    mine = _mine()

    rounds = [take(1) for _ in range(4)]

    assert [mine.pk] in rounds
    assert rounds.index([mine.pk]) >= 1


def test_every_eighth_claim_takes_the_oldest(take: Any) -> None:
    """Low priorities go on while high ones keep coming."""
    old = _mine(priority=-100, available_at=clock.now() - timedelta(days=1))
    for _ in range(20):
        _mine(priority=50)

    taken = [take(1)[0] for _ in range(claiming.OLDEST_EVERY)]

    assert taken.index(old.pk) == claiming.OLDEST_EVERY - 1


def test_promotion_comes_at_the_time_that_is_known(take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest due time ends the sleep of an idle child, and it is promoted then although no second has passed."""
    monkeypatch.setattr(clearing, "EVERY", 3600.0)
    job = _mine(scheduled=True, available_at=clock.now() + timedelta(seconds=30))
    assert take(1) == []
    assert 0 < take.claimer.seconds_to_next_due() <= 30

    Job.objects.filter(pk=job.pk).update(available_at=clock.now() - SECOND)
    assert take(1) == []
    take.claimer._clearing.next_due = clock.boot_seconds()
    assert take(1) == [job.pk]
    assert take.claimer.seconds_to_next_due() == float("inf")


def test_moving_rows_is_done_in_slices(take: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A great many rows are moved in several rounds, each of which also claims."""
    monkeypatch.setattr(clearing, "SLICE", 0.0)
    monkeypatch.setattr(clearing, "BATCH", 2)
    for _ in range(5):
        _mine(scheduled=True, available_at=clock.now() - SECOND)

    take(1)
    assert Job.objects.filter(state="scheduled").count() == 3
    take(1)
    take(1)
    assert Job.objects.filter(state="scheduled").count() == 0
    Job.objects.update(
        state="scheduled",
        lane=lane_of(f"{JOB_TYPE} 1"),
        attempt_id=None,
        lease_owner=None,
        lease_child=None,
        lease_expires_at=None,
    )
    left = []
    for _ in range(3):
        take(0)
        left.append(Job.objects.filter(state="scheduled").count())
    assert left == [3, 1, 0]


@pytest.mark.sqlite
def test_idle_round_writes_nothing(declare: Declare) -> None:
    """Looking at pauses, due jobs, lanes and heads takes no write lock."""
    from django.test.utils import CaptureQueriesContext

    declare(lambda: None)
    idle: Claimer = claimer()
    JobFactory(scheduled=True)
    with CaptureQueriesContext(connection) as queries:
        idle.take(2, 0)

    assert [query["sql"] for query in queries if "UPDATE" in query["sql"] or "BEGIN" in query["sql"]] == []
