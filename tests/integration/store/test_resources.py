"""Resources in the claim: limits over queues and types, rates, holds, and the lanes in which their jobs wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError

from django_jobs import clock, store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone
from django_jobs.models import Job, Resource
from django_jobs.store.resources import Lane, hold_resource, stands, waiting_lanes
from tests.databases import Server
from tests.factories import JobFactory
from tests.scenes import BUDGET, QUEUE, failure, known, loss, new_job, request

API = "payments-api"
HOUR = timedelta(hours=1)


@pytest.fixture
def resources(settings: Any) -> Callable[..., None]:
    """Return what sets the resources of the settings."""

    def declare(**entries: dict[str, Any]) -> None:
        settings.DJANGO_JOBS = {
            **getattr(settings, "DJANGO_JOBS", {}),
            "RESOURCES": {name.replace("_", "-"): entry for name, entry in entries.items()},
        }

    return declare


def ready(many: int = 1, *, resource: str = API, **values: Any) -> list[Job]:
    """Return jobs that use a resource and can start."""
    return JobFactory.create_batch(many, resource=resource, lane=resource, **values)


def claimed(room: int = 10, *queues: str, lanes: list[Lane] | None = None, **changes: Any) -> list[store.Claimed]:
    """Claim from the queues, and from all lanes in which something waits."""
    names = queues or (QUEUE,)
    found = waiting_lanes(names, using="default") if lanes is None else lanes
    return store.claim(request(room, queues=names, lanes=found, **changes), using="default")


def test_limit_counts_over_queues_and_types(resources: Callable[..., None], database: Server) -> None:
    """Three of a resource run at once, whatever their queue and type; what else waits is not held back."""
    resources(payments_api={"limit": 3})
    ready(2, queue_name="reports")
    ready(2, queue_name="mail", job_type="tests.other")
    JobFactory(queue_name="mail")

    found = claimed(10, "reports", "mail", types=[known(), known("tests.other")])

    assert sorted(job.resource for job in found) == ["", API, API, API]
    assert claimed(10, "reports", "mail", types=[known(), known("tests.other")]) == []
    store.succeed(next(job for job in found if job.resource), result=None, budget=BUDGET)
    assert len(claimed(10, "reports", "mail", types=[known(), known("tests.other")])) == 1


def test_jobs_of_a_resource_are_left_alone_unless_asked_for(resources: Callable[..., None], database: Server) -> None:
    """A claim that names no lane takes nothing that uses a resource, even without any bound."""
    ready()
    assert claimed(lanes=[]) == []
    assert len(claimed()) == 1


def test_order_is_by_priority_across_lanes(resources: Callable[..., None], database: Server) -> None:
    """A resource is no order of its own: what is more important goes first, within the bounds."""
    resources(payments_api={"limit": 1})
    low, high = *ready(priority=1), *ready(priority=9)
    between = JobFactory(priority=5)

    assert [job.job_id for job in claimed()] == [high.pk, between.pk]
    assert Job.objects.get(pk=low.pk).state == "queued"


def test_rate_is_spent_and_comes_back(resources: Callable[..., None], database: Server) -> None:
    """So many start as the bucket holds; more do when time has passed, at the rate and no faster."""
    resources(payments_api={"rate": "60/m", "burst": 2})
    now = clock.now()
    ready(6, available_at=now - HOUR)

    def claims_at(seconds: float) -> int:
        with clock.override(lambda: now + timedelta(seconds=seconds)):
            return len(claimed())

    assert [claims_at(seconds) for seconds in (0, 0.5, 1, 1.9, 3.9)] == [2, 0, 1, 0, 2]


def test_unclaimed_tokens_stay(resources: Callable[..., None], database: Server) -> None:
    """Only what starts is taken from the bucket, not what was asked for."""
    resources(payments_api={"rate": "1/h", "burst": 3})
    ready(2)
    assert len(claimed(50)) == 2
    ready(2)
    assert len(claimed(50)) == 1


def test_downstream_holds_the_resource_for_everyone(resources: Callable[..., None], database: Server) -> None:
    """After a wish to wait nothing that uses the resource starts until then; a shorter wish changes nothing."""
    now = clock.now()
    (job,) = ready(available_at=now - HOUR)
    with clock.override(lambda: now):
        until = hold_resource(API, timedelta(seconds=30), job_id=job.pk, using="default")
        assert until == now + timedelta(seconds=30)
        assert hold_resource(API, timedelta(seconds=10), job_id=job.pk, using="default") is None
        assert claimed() == []
    with clock.override(lambda: now + timedelta(seconds=30)):
        assert len(claimed()) == 1
    assert Resource.objects.get().paused_by == job.pk


def test_wish_without_measure_is_bounded(database: Server) -> None:
    """A downstream that asks for a year is asked again after a day."""
    now = clock.now()
    with clock.override(lambda: now):
        assert hold_resource(API, timedelta(days=365), job_id=JobFactory().pk, using="default") == now + timedelta(
            days=1
        )


def test_page_of_the_resource_wins_over_the_settings(resources: Callable[..., None], database: Server) -> None:
    """What a person gave stands instead of what the settings say; without it the settings hold."""
    resources(payments_api={"limit": 9, "rate": "5/m"})
    assert stands([API], using="default")[API].standing.bounds.limit == 9
    Resource.objects.create(name=API, max_running=1, max_rate="7/s")
    bounds = stands([API], using="default")[API].standing.bounds
    assert (bounds.limit, bounds.rate and bounds.rate.text) == (1, "7/s")


def test_undeclared_resource_has_no_bound(database: Server) -> None:
    """Jobs of a release whose settings name no such resource run, and are counted."""
    ready(3)
    assert len(claimed()) == 3
    assert stands([API], using="default")[API].standing.running == 3


def test_suspects_of_a_full_resource_make_nobody_wait(resources: Callable[..., None], database: Server) -> None:
    """A job that must run alone is claimed within its resource's bounds too."""
    resources(payments_api={"limit": 1})
    ready(2, suspect=True)
    lanes = waiting_lanes([QUEUE], using="default")
    assert store.oldest_suspect([QUEUE], [known()], using="default") is Alone.NO
    assert store.oldest_suspect([QUEUE], [known()], using="default", lanes=lanes) is Alone.CHILD
    assert len(claimed(1, suspects=True, alone=Alone.CHILD)) == 1
    assert claimed(1, suspects=True, alone=Alone.CHILD) == []


LATER = timedelta(hours=1)
ENDS: dict[str, Callable[[store.Claimed], object]] = {
    "retry later": lambda job: store.fail(job, failure=failure(unknown=1), delay=LATER, budget=BUDGET),
    "retry at once": lambda job: store.fail(job, failure=failure(unknown=1), delay=timedelta(0), budget=BUDGET),
    "release": lambda job: store.release(job, message="stopping"),
    "snooze": lambda job: store.snooze(job, delay=LATER, counters=Counters(), message="later"),
    "rescue": lambda job: store.rescue(job, loss=loss()),
    "rescue later": lambda job: store.rescue(job, loss=loss(delay=LATER)),
}


@pytest.mark.parametrize("end", ENDS)
def test_job_waits_in_its_lane_again_however_its_attempt_ends(
    resources: Callable[..., None], database: Server, end: str
) -> None:
    """Ready jobs stand in the lane of their resource, later ones in the open lane, and promotion brings them back."""
    resources(payments_api={"limit": 1})
    now = clock.now()
    ready(available_at=now - HOUR)
    (job,) = claimed()
    ENDS[end](job)
    row = Job.objects.get()
    assert row.lane == (API if row.state == "queued" else "")
    with clock.override(lambda: now + 2 * LATER):
        store.promote([QUEUE], using="default")
        assert Job.objects.get().lane == API
        assert len(claimed()) == 1


def test_enqueued_job_stands_in_its_lane(database: Server) -> None:
    """One that is due waits in the lane of its resource, one that is due later in the open lane."""
    for delay in (None, HOUR):
        store.enqueue(new_job(resource=API, delay=delay), using="default")
        store.enqueue_many([new_job(resource=API, delay=delay), new_job(delay=delay)], using="default")
    found = Job.objects.order_by("id").values_list("state", "resource", "lane")
    assert list(found) == [
        *[("queued", API, API), ("queued", API, API), ("queued", "", "")],
        *[("scheduled", API, ""), ("scheduled", API, ""), ("scheduled", "", "")],
    ]


def test_paused_kinds_are_set_aside_from_lanes_too(database: Server) -> None:
    """Rows that nobody may run leave the lane of their resource, and come back to it."""
    ready(2)
    lanes = [Lane(QUEUE, API)]
    assert store.defer([QUEUE], runnable=[], using="default", lanes=lanes) == 2
    (lane,) = set(Job.objects.values_list("lane", flat=True))
    assert lane.startswith("!")
    kind = lane.removeprefix("!")
    assert store.waiting.take_up([(QUEUE, lane)], runnable=[kind], using="default") == 2
    assert set(Job.objects.values_list("state", "lane")) == {("queued", API)}


@pytest.mark.postgres
def test_claim_waits_for_no_busy_resource(resources: Callable[..., None], database: Server) -> None:
    """Where somebody holds the resource's lock for too long, the rest is claimed without it."""
    resources(payments_api={"limit": 1})
    ready()
    JobFactory()
    with psycopg.connect(database.url) as held:
        held.execute(
            "SELECT pg_advisory_xact_lock(%s, %s)",
            [store.limits.LOCK_SPACE, store.limits._key(f"resource {API}")],
        )
        assert [job.resource for job in claimed()] == [""]


def test_errors_of_the_database_are_not_taken_for_a_busy_lock(
    resources: Callable[..., None], database: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the lock that was not given is answered by a smaller claim."""
    resources(payments_api={"limit": 1})
    ready()

    def breaks(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr(store.claims, "stands", breaks)
    with pytest.raises(OperationalError, match="gone"):
        claimed()
