"""A queue's limit: how many of its jobs run at once, over all workers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs import clock, store
from django_jobs.domain.states import Alone
from django_jobs.models import Job
from django_jobs.store.limits import limits_of, locked, with_room
from tests.databases import Server
from tests.factories import JobFactory
from tests.scenes import BUDGET, known, request


@pytest.fixture
def limited(settings: Any) -> None:
    """Two queues with a limit of two; "default" has none."""
    settings.DJANGO_JOBS = {
        **getattr(settings, "DJANGO_JOBS", {}),
        "QUEUES": {"reports": {"limit": 2}, "mail": {"limit": 2}, "wide": {"capacity": 9}},
    }


def _claim(room: int, *queues: str, **changes: Any) -> list[store.Claimed]:
    return store.claim(request(room, queues=queues or ["reports"], **changes), using="default")


def test_limits_come_from_the_settings(limited: None) -> None:
    """A queue without an entry, or with other bounds, has no limit."""
    assert limits_of(["reports", "default", "wide"]) == {"reports": 2}


def test_no_more_run_than_the_limit_allows(limited: None, database: Server) -> None:
    """A claim with much room takes what the limit leaves; what ends makes room for as much."""
    JobFactory.create_batch(4, queue_name="reports")

    first = _claim(10)
    assert len(first) == 2
    assert _claim(10) == []
    store.succeed(first[0], result=None, budget=BUDGET)
    assert len(_claim(10)) == 1
    assert Job.objects.filter(state="running").count() == 2


def test_full_queue_holds_no_other_back(limited: None, database: Server) -> None:
    """The jobs of other queues are claimed in their order; each limit counts its own queue."""
    for queue in ("reports", "mail", "default"):
        JobFactory.create_batch(3, queue_name=queue, priority=5 if queue == "reports" else 0)
    JobFactory(queue_name="reports", running=True)

    found = _claim(10, "reports", "mail", "default")

    assert sorted(job.queue_name for job in found) == ["default"] * 3 + ["mail"] * 2 + ["reports"]
    assert found[0].queue_name == "reports"


def test_suspects_count_and_are_counted(limited: None, database: Server) -> None:
    """A job that runs alone takes a place, and none starts without one; no worker makes room for it meanwhile."""
    JobFactory(queue_name="reports", running=True, isolation="child")
    JobFactory.create_batch(2, queue_name="reports", suspect=True)

    assert store.oldest_suspect(["reports"], [known()], using="default") is Alone.CHILD
    assert len(_claim(1, suspects=True, alone=Alone.CHILD)) == 1
    assert store.oldest_suspect(["reports"], [known()], using="default") is Alone.NO
    assert _claim(1, suspects=True, alone=Alone.CHILD) == []
    assert Job.objects.filter(state="running").count() == 2


def test_many_suspects_at_once_keep_the_limit(limited: None, database: Server) -> None:
    """Also a claim for several of them takes no more than there are places."""
    JobFactory.create_batch(4, queue_name="reports", suspect=True)

    assert len(_claim(4, suspects=True, alone=Alone.CHILD)) == 2


@pytest.mark.parametrize("end", ["fail", "release", "snooze", "rescue"])
def test_place_is_free_however_the_attempt_ends(limited: None, database: Server, end: str) -> None:
    """Places are the running rows, so none can be lost."""
    from django_jobs.domain.retry import Counters
    from tests.scenes import failure, loss

    JobFactory.create_batch(3, queue_name="reports")
    first, _ = _claim(2)
    later = timedelta(hours=1)
    {
        "fail": lambda: store.fail(first, failure=failure(unknown=1), delay=later, budget=BUDGET),
        "release": lambda: store.release(first, message="stopping"),
        "snooze": lambda: store.snooze(first, delay=later, counters=Counters(), message="later"),
        "rescue": lambda: store.rescue(first, loss=loss()),
    }[end]()

    assert len(_claim(5)) == 1


def test_two_places_of_one_queue_do_not_add_up(limited: None, database: Server) -> None:
    """Looking at the head and behind a place, or for the oldest, gives the queue no second limit."""
    jobs = [JobFactory(queue_name="reports", priority=n, available_at=clock.now()) for n in range(4)]
    place = store.claims.before_all("reports", jobs[1].priority)

    assert len(_claim(9, beyond=[place], oldest=True)) == 2


def test_oldest_goes_before_the_highest(database: Server) -> None:
    """A claim for the oldest takes what has been due for longest, whatever is more important; the next one does not."""
    now = clock.now()
    old = JobFactory(priority=-50, available_at=now - timedelta(hours=9))
    for _ in range(3):
        JobFactory(priority=-50, available_at=now - timedelta(minutes=9))
    high = JobFactory(priority=50, available_at=now - timedelta(minutes=1))

    assert [job.job_id for job in store.claim(request(1, oldest=True), using="default")] == [old.pk]
    assert [job.job_id for job in store.claim(request(1), using="default")] == [high.pk]


def test_full_queue_costs_one_look(limited: None, database: Server) -> None:
    """When every queue is full, nothing is locked and nothing but the running rows is read."""
    JobFactory.create_batch(2, queue_name="reports", running=True)
    JobFactory.create_batch(3, queue_name="reports")
    with CaptureQueriesContext(connection) as queries:
        assert _claim(5) == []

    assert len(queries) == 1
    assert with_room(["reports", "mail"], {"reports": 2, "mail": 2}, using="default") == ["mail"]


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_claim_that_cannot_get_the_lock_takes_from_other_queues(
    limited: None, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who hangs with the lock keeps others from that queue only, and for a bounded time."""
    from tests.crowd import meanwhile

    monkeypatch.setattr("django_jobs.store.limits.LOCK_PATIENCE", 100)
    JobFactory(queue_name="reports")
    JobFactory()

    def hold(pause: Any) -> None:
        with locked(["reports"], using="default"):
            pause()

    with meanwhile(hold):
        assert [job.queue_name for job in _claim(5, "reports", "default")] == ["default"]
    assert [job.queue_name for job in _claim(5, "reports", "default")] == ["reports"]


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_other_errors_of_a_claim_are_raised(limited: None, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a lock that somebody else has is no error."""
    from django.db import OperationalError

    def broken(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    JobFactory(queue_name="reports")
    monkeypatch.setattr("django_jobs.store.claims.locked", broken)
    with pytest.raises(OperationalError, match="gone"):
        _claim(5)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_limit_holds_whatever_the_isolation_level(limited: None, server: Server, level: str) -> None:
    """The count sees what the holder of the lock before committed, although a snapshot of the project's would not."""
    from tests.crowd import together

    JobFactory.create_batch(12, queue_name="reports")

    def claim() -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{level}'")
        return len(_claim(3))

    results = together(*[claim] * 6)

    assert [result for result in results if not isinstance(result, int)] == []
    assert sum(results) == 2
    assert Job.objects.filter(state="running").count() == 2


@pytest.mark.django_db(transaction=True)
def test_claim_inside_a_transaction_keeps_the_limit(limited: None, server: Server) -> None:
    """A test or a program that claims inside of atomic() is not refused."""
    JobFactory.create_batch(3, queue_name="reports")
    with transaction.atomic():
        assert Job.objects.count() == 3
        assert len(_claim(9)) == 2
