"""The supervisor's own database work: it beats whatever happens, and judges others only between its beats."""

from __future__ import annotations

import os
import threading
import uuid
from datetime import timedelta

import pytest

from django_jobs import clock
from django_jobs.domain.states import LossCause
from django_jobs.models import Attempt, Delivery, DeliveryAttempt, Job
from django_jobs.store import abandoned, succeed
from django_jobs.store.workers import WorkerRecord
from django_jobs.worker.finish import record_failure
from django_jobs.worker.heart import Heart
from django_jobs.worker.rescue import take_back
from tests.factories import WorkerFactory
from tests.factories_outbox import DeliveryFactory
from tests.integration.worker.conftest import Declare, take


def heart() -> Heart:
    """A heart that has not started."""
    record = WorkerRecord(
        worker_id=uuid.uuid4(),
        name="w",
        host="h",
        pid=os.getpid(),
        queues=(),
        job_types=(),
        threads=1,
        processes=1,
        code_version="",
    )
    return Heart(record, using="default")


def test_heart_goes_on_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nothing expected is logged; the thread that says that the worker lives goes on."""
    went_on, turns = threading.Event(), []

    def turn(_: Heart) -> None:
        turns.append(1)
        if len(turns) == 1:
            raise IndexError("deque mutated")
        went_on.set()

    monkeypatch.setattr(Heart, "_turn", turn)
    beating = heart()
    beating.start()
    beating.report_death(child=1, status=-9)

    assert went_on.wait(timeout=20)
    assert beating.is_alive
    beating._reported.get()
    assert beating.finish(seconds=20)


@pytest.mark.django_db(transaction=True)
def test_judging_stops_when_the_own_beat_is_due(declare: Declare) -> None:
    """Nothing is taken back once the judge has to say first that it lives itself."""
    declare(lambda: None, atomic=False).enqueue()
    take()
    found = abandoned(using="default")
    assert [item.cause for item in found] == [LossCause.SILENT]

    take_back(found, while_true=lambda: False)

    assert Job.objects.get().state == "running"
    take_back(found)
    assert Job.objects.get().state == "queued"


@pytest.mark.parametrize(("on_purpose", "lost_count"), [(False, 1), (True, 0)])
@pytest.mark.django_db(transaction=True)
def test_deliveries_of_a_dead_child_are_taken_back(on_purpose: bool, lost_count: int) -> None:
    """At once, with what ended the process; an end on purpose counts nothing, and other children keep theirs."""
    beating = heart()
    worker_id = beating._record.worker_id
    mine, other = (DeliveryFactory(claimed=True, lease_owner=worker_id, lease_child=child) for child in (1, 2))
    beating.report_death(child=1, status=-9, on_purpose=on_purpose)

    beating._take_back_of_the_dead()

    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.state, mine.lost_count, other.state) == ("pending", lost_count, "claimed")
    detail = DeliveryAttempt.objects.get(delivery=mine).detail
    assert ("its worker ended the process on purpose" if on_purpose else "ended by SIGKILL") in detail
    assert beating._deaths == []


@pytest.mark.django_db(transaction=True)
def test_deliveries_of_a_silent_worker_are_taken_back_by_who_may_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss in company makes a suspect; who may not judge others leaves them alone."""
    silent = WorkerFactory(heartbeat_at=clock.now() - timedelta(minutes=5))
    held = DeliveryFactory(claimed=True, lease_owner=silent.pk, lease_expires_at=clock.now() - timedelta(minutes=1))
    beating = heart()
    monkeypatch.setattr(beating, "_may_go_on", lambda: False)
    beating._judge()
    assert Delivery.objects.get().state == "claimed"

    monkeypatch.setattr(beating, "_may_go_on", lambda: True)
    beating._judge()

    held.refresh_from_db()
    assert (held.state, held.lost_count) == ("pending", 1)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_overdue_attempt_behind_a_lock_does_not_stop_the_loop(declare: Declare, database_url: str) -> None:
    """The loop of a child waits a second at most for the row of an overdue attempt, and tries again later."""
    import psycopg

    from django_jobs.worker.pool import Pool
    from django_jobs.worker.shutdown import Ending
    from django_jobs.worker.wake import Wake

    declare(lambda: None, atomic=False).enqueue()
    attempt = take()
    pool = Pool(1, lambda _: None, lambda _: None, lambda: None)
    ending = Ending(pool, Wake(), grace=1)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job FOR NO KEY UPDATE")
        ending._record_overdue(attempt)
        assert not attempt.recorded
        other.rollback()

    ending._record_overdue(attempt)

    assert attempt.recorded
    assert Attempt.objects.get().outcome == "failed"
    pool.stop()


@pytest.mark.parametrize(("ended", "refusals"), [("failed", 0), ("succeeded", 0), ("lost", 1)])
@pytest.mark.django_db(transaction=True)
def test_overdue_thread_whose_attempt_has_ended(declare: Declare, ended: str, refusals: int) -> None:
    """A thread that stands after its recorded end came with nothing too late; one whose job somebody took away did."""
    from django_jobs.worker.pool import Pool
    from django_jobs.worker.shutdown import Ending
    from django_jobs.worker.wake import Wake

    declare(lambda: None, atomic=False).enqueue()
    attempt = take()
    pool = Pool(1, lambda _: None, lambda _: None, lambda: None)
    ends = {
        "failed": lambda: record_failure(attempt, ValueError("it failed by itself")),
        "succeeded": lambda: succeed(attempt, result=None, budget=timedelta(minutes=1)),
        "lost": lambda: take_back(abandoned(using="default")),
    }
    ends[ended]()

    Ending(pool, Wake(), grace=1)._record_overdue(attempt)

    assert attempt.recorded
    found = Attempt.objects.get()
    assert (found.outcome, found.refused_count) == (ended, refusals)
    pool.stop()
