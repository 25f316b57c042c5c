"""Jobs of kinds that nobody may or can run: set aside, taken up again, and dead-lettered after the grace."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import clock, store
from django_jobs.domain.lanes import is_aside, kind_in, kind_parts, kind_text, lane_of
from django_jobs.models import Job, Pause, Worker
from django_jobs.store.claims import before_all
from django_jobs.store.waiting import look_at, set_aside, take_up, until_due
from django_jobs.store.workers import announced
from tests.databases import Server
from tests.factories import JOB_TYPE, JobFactory, WorkerFactory
from tests.scenes import NOON, Told, everything, request

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
KIND = f"{JOB_TYPE} 1"
GONE = "gone.away 1"


def _gone(**values: Any) -> Job:
    """Store a job of a type that nobody knows."""
    job: Job = JobFactory(**{"job_type": "gone.away", **values})
    return job


def _aside(**values: Any) -> Job:
    """Store a job that is set aside since its type is unknown."""
    return _gone(**{"scheduled": True, "lane": lane_of(GONE), "available_at": clock.now() - 2 * HOUR, **values})


def test_lane_tells_the_kind() -> None:
    """A lane's name can be read back, also for a type with a space in it."""
    kind = kind_text("shop.charge order", 12)

    assert kind_in(lane_of(kind)) == kind
    assert kind_parts(kind) == ("shop.charge order", 12)
    assert is_aside(lane_of(kind))
    assert not is_aside("")


@pytest.mark.parametrize("suspect", [False, True])
def test_queued_job_of_a_strange_kind_is_set_aside(database: Server, suspect: bool) -> None:
    """It leaves the ready index, keeps its due time, and what can run stays where it is."""
    job, version = _gone(suspect=suspect), JobFactory(payload_version=2)
    mine, other_queue = JobFactory(), _gone(queue_name="mail")

    with Told() as told:
        assert store.defer(["default"], runnable=[KIND], using="default") == 2

    due = job.available_at
    job.refresh_from_db()
    version.refresh_from_db()
    assert (job.state, job.lane, job.available_at) == ("scheduled", lane_of(GONE), due)
    assert (version.state, version.lane) == ("scheduled", lane_of(f"{JOB_TYPE} 2"))
    assert set(Job.objects.filter(state="queued").values_list("pk", flat=True)) == {mine.pk, other_queue.pk}
    assert sorted((fields["kind"], fields["count"]) for fields in told.named("job.defer")) == [
        (GONE, 1),
        (f"{JOB_TYPE} 2", 1),
    ]


def test_long_type_name_fits_into_a_lane(database: Server) -> None:
    """The longest name that a job type may have is set aside and found again."""
    name = "x" * 200
    JobFactory(job_type=name, payload_version=2**31 - 1)

    assert store.defer(["default"], runnable=[], using="default") == 1
    assert [kind_in(lane) for _, lane in set_aside(["default"], using="default")] == [f"{name} {2**31 - 1}"]


@pytest.mark.parametrize("state", ["scheduled", "failed"])
def test_promotion_sets_strange_kinds_aside_in_place(database: Server, state: str) -> None:
    """A due job that nobody may or can run does not become ready; one that is not due yet is not touched."""
    strange = _gone(**{state: True}, available_at=clock.now() - SECOND)
    _gone(**{state: True})
    mine = JobFactory(**{state: True}, available_at=clock.now() - SECOND)

    with Told() as told:
        assert store.promote(["default"], runnable=[KIND], using="default") == [mine.pk]

    strange.refresh_from_db()
    assert (strange.state, strange.lane) == (state, lane_of(GONE))
    assert Job.objects.filter(lane="").count() == 2
    assert told.named("job.defer") == [{"kind": GONE, "count": 1}]
    assert told.named("job.promote") == [{"count": 1}]


def test_set_aside_jobs_wait_for_nobody(database: Server) -> None:
    """They are not due work: no worker is kept awake by them, and promotion passes them by."""
    _aside()

    assert store.next_due(["default"], using="default") is None
    assert until_due(["default"], using="default") is None
    before = everything()
    assert store.promote(["default"], runnable=[GONE], using="default") == []
    assert everything() == before


def test_lanes_are_taken_up_again(database: Server) -> None:
    """Once the kind can run, its jobs become ready in parts, with the due times that they had."""
    jobs = [_aside(available_at=NOON - number * SECOND) for number in range(3)]
    _aside(queue_name="mail")
    other = _aside(lane="!other.type 1", job_type="other.type")

    lanes = set_aside(["default", "nowhere"], using="default")
    assert sorted(lanes) == [("default", lane_of(GONE)), ("default", "!other.type 1")]
    wanted = [("default", lane_of(GONE))]
    assert take_up(wanted, runnable=[GONE], using="default", limit=2) == 2
    assert take_up(wanted, runnable=[GONE], using="default", limit=2) == 1
    assert take_up(wanted, runnable=[GONE], using="default", limit=2) == 0
    assert take_up([], runnable=[GONE], using="default") == 0

    ready = Job.objects.filter(state="queued", lane="").order_by("available_at")
    assert [job.pk for job in ready] == [job.pk for job in reversed(jobs)]
    assert [job.available_at for job in ready] == sorted(job.available_at for job in jobs)
    other.refresh_from_db()
    assert other.state == "scheduled"


def test_taking_up_checks_the_kind_again(database: Server) -> None:
    """If the type was paused in the meantime its jobs stay aside."""
    job = _aside()

    assert take_up([("default", lane_of(GONE))], runnable=[KIND], using="default") == 0
    job.refresh_from_db()
    assert (job.state, job.lane) == ("scheduled", lane_of(GONE))


def test_high_band_is_promoted_first(database: Server) -> None:
    """High before normal before low, whatever is older; within a band the oldest."""
    now = clock.now()
    low = JobFactory(scheduled=True, priority=-9, available_at=now - 9 * SECOND)
    normal = JobFactory(scheduled=True, available_at=now - 5 * SECOND)
    high, higher = (
        JobFactory(scheduled=True, priority=priority, available_at=now - ago * SECOND)
        for priority, ago in ((1, 3), (99, 2))
    )

    order = [store.promote(["default"], using="default", limit=1) for _ in range(4)]

    assert order == [[high.pk], [higher.pk], [normal.pk], [low.pk]]


def test_announced_is_what_live_workers_can_run(database: Server) -> None:
    """Silent and stopped workers announce nothing; one that is stopping still does."""
    WorkerFactory(kinds=json.dumps(["a 1", "b 2"]))
    WorkerFactory(kinds='["c 1"]', silent=True)
    WorkerFactory(kinds='["d 1"]', stopped=True)
    WorkerFactory(kinds='["e 1"]', stopping_at=clock.now())

    assert announced(using="default") == {"a 1", "b 2", "e 1"}


def test_look_at_the_head_tells_what_is_strange(database: Server) -> None:
    """Kinds that the asker cannot run, useless jobs, and where its own begin; nothing about an empty queue."""
    for _ in range(3):
        _gone(priority=5)
    JobFactory(payload_version=7, suspect=True)
    JobFactory(useful_until=clock.now() - SECOND)
    places = [before_all("default"), before_all("mail")]

    seen = look_at(places, mine=[KIND], using="default")

    assert frozenset().union(*(look.strange for look in seen)) == {GONE, f"{JOB_TYPE} 7"}
    assert sum(look.late for look in seen) == 1
    assert {look.queue_name for look in seen} <= {"default", ""}


@pytest.mark.postgres
def test_look_tells_the_place_before_the_first_own_job(database: Server) -> None:
    """A claim that looks behind that place gets its own job, and the one before it is not hidden."""
    for number in range(3):
        last = _gone(priority=5, available_at=NOON + number * SECOND)
    mine = JobFactory()

    (look,) = look_at([before_all("default")], mine=[KIND], using="default")

    assert (look.many, look.first_mine, look.late) == (4, 4, 0)
    assert look.last is not None
    assert (look.last.job_id, look.last.priority) == (last.pk, 5)
    (behind,) = look_at([look.last], mine=[KIND], using="default")
    assert (behind.many, behind.first_mine, behind.last) == (1, 1, None)
    found = store.claim(request(1, beyond=[look.last]), using="default")
    assert [job.job_id for job in found] == [mine.pk]


def _judge(**values: Any) -> uuid.UUID:
    """Register a worker that has lived for the grace; returns its id."""
    worker: Worker = WorkerFactory(**values)
    return worker.pk


def test_r55_unknown_type_is_dead_lettered_after_the_grace(database: Server) -> None:
    """R55: kept for an hour, then a dead letter with its reason, once; its owner is returned, to be told."""
    job = _aside(owner="shop")
    judge = _judge()
    with Told() as told:
        late = store.expire(using="default", judge=judge)
        assert [(row["id"], row["owner"], row["dead_reason"]) for row in late] == [(job.pk, "shop", "unknown_type")]
        assert store.expire(using="default", judge=judge) == []

    job.refresh_from_db()
    assert (job.state, job.dead_reason, job.lane) == ("dead_lettered", "unknown_type", "")
    assert [(dead["job_id"], dead["reason"]) for dead in told.named("job.dead")] == [(job.pk, "unknown_type")]


@pytest.mark.parametrize(
    "why",
    ["due for less", "judge is young", "judge has stopped", "announced lately", "paused", "nobody judges", "not aside"],
)
def test_f26_unknown_type_is_kept_within_the_grace_r55(database: Server, why: str) -> None:
    """R55: nothing is dead-lettered before everybody who knows the type had an hour to come."""
    now = clock.now()
    _aside(**{"available_at": now - HOUR + 9 * SECOND} if why == "due for less" else {})
    if why == "not aside":
        Job.objects.update(lane="")
    if why == "announced lately":
        WorkerFactory(kinds=json.dumps([GONE]), heartbeat_at=now - HOUR / 2, stopped_at=now - HOUR / 2)
    if why == "paused":
        Pause.objects.create(kind="type", name="gone.away", actor="ann", reason="why", created_at=now)
    young, stopped = {"started_at": now - HOUR + 9 * SECOND}, {"stopped": True}
    judge = _judge(**{"judge is young": young, "judge has stopped": stopped}.get(why, {}))

    assert store.expire(using="default", judge=None if why == "nobody judges" else judge) == []
    assert Job.objects.get().state == "scheduled"


def test_pause_that_is_over_protects_nothing(database: Server) -> None:
    """A pause counts until its end."""
    _aside()
    Pause.objects.create(
        kind="type",
        name="gone.away",
        actor="ann",
        reason="why",
        paused_until=clock.now() - SECOND,
        created_at=clock.now() - HOUR,
    )

    assert len(store.expire(using="default", judge=_judge())) == 1


def test_known_type_of_an_unknown_version_has_its_own_reason(database: Server) -> None:
    """If workers know the type but not the payload version, the dead letter says so."""
    WorkerFactory(job_types='["gone.away"]', kinds='["gone.away 2"]')
    job = _aside()

    store.expire(using="default", judge=_judge())

    job.refresh_from_db()
    assert job.dead_reason == "version"


def test_useless_job_that_is_aside_ends_as_expired(database: Server) -> None:
    """The end of its usefulness comes first, also for a job that nobody knows."""
    job = _aside(useful_until=clock.now() - SECOND)

    assert [row["dead_reason"] for row in store.expire(using="default", judge=_judge())] == ["expired"]
    job.refresh_from_db()
    assert (job.dead_reason, job.lane) == ("expired", "")


def test_grace_is_a_setting(database: Server, settings: Any) -> None:
    """A site decides how long an unknown type is kept."""
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "UNKNOWN_TYPE_GRACE": 3 * HOUR}
    _aside()
    judge = _judge(started_at=clock.now() - 4 * HOUR)
    assert store.expire(using="default", judge=judge) == []

    settings.DJANGO_JOBS = {**settings.DJANGO_JOBS, "UNKNOWN_TYPE_GRACE": HOUR}

    assert len(store.expire(using="default", judge=judge)) == 1
