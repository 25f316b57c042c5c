"""The reapers' look: one bad row stops nothing, locked rows are counted, and many of either starve nobody."""

from __future__ import annotations

import logging
import uuid
from copy import copy
from datetime import timedelta

import pytest
from django.db import OperationalError

from django_jobs import clock
from django_jobs.models import Attempt, Job
from django_jobs.store import abandoned
from django_jobs.worker import rescue, sweep
from django_jobs.worker.sweep import Sweep
from tests.factories import LEASE, JobFactory
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)

BAD = "tests.bad"


@pytest.fixture
def bad_rows_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every row of the bad type raise when it is judged."""
    judge = rescue.judge

    def judged(found: rescue.Abandoned, *, exit_status: int | None = None) -> rescue.Loss:
        if found.job_type == BAD:
            raise ValueError("this row is broken")
        return judge(found, exit_status=exit_status)

    monkeypatch.setattr(rescue, "judge", judged)


def lost(count: int, **values: object) -> list[uuid.UUID]:
    """Store running jobs whose worker is unknown."""
    return [JobFactory(running=True, **values).pk for _ in range(count)]


def many(count: int, job_type: str) -> None:
    """Store very many of them at once."""
    pattern = JobFactory(running=True, job_type=job_type)
    attempt = pattern.attempts.get()
    jobs, attempts = [], []
    for number in range(1, count):
        job, row = copy(pattern), copy(attempt)
        job.pk, row.pk = uuid.UUID(int=pattern.pk.int + number), uuid.uuid4()
        job.attempt_id, row.job_id = row.pk, job.pk
        jobs.append(job)
        attempts.append(row)
    Job.objects.bulk_create(jobs, batch_size=500)
    Attempt.objects.bulk_create(attempts, batch_size=500)


def test_one_bad_row_does_not_stop_the_sweep_r18(bad_rows_raise: None, caplog: pytest.LogCaptureFixture) -> None:
    """100 lost attempts, and one among the first that raises: the 100 are taken back by the same look, and it is told."""
    lost(3)
    lost(1, job_type=BAD)
    lost(97)

    with Told() as told, caplog.at_level(logging.WARNING):
        assert Sweep("default").go_on(lambda: True)

    assert dict(Job.objects.values_list("job_type", "state").distinct()) == {BAD: "running", "tests.work": "queued"}
    assert Job.objects.filter(state="queued").count() == 100
    assert told.named("rescue.failed") == [{"count": 1}]
    assert "1 lost attempts could not be taken back" in caplog.text


def test_a_look_goes_on_where_it_was_interrupted() -> None:
    """The own beat may come between any two rows: nothing is tried twice before everything had its turn."""
    lost(6)
    looking, moments = Sweep("default"), iter([True, True, True, False])

    assert looking.go_on(lambda: next(moments)) is False
    done = Job.objects.filter(state="queued").count()
    assert 0 < done < 6
    assert looking.go_on(lambda: True)
    assert Job.objects.filter(state="queued").count() == 6


def test_look_that_takes_all_the_time_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a page takes two seconds, a turn lasts one: nobody is taken back by the first turn, all are by the next."""
    ids = lost(3)
    now, read = [0.0], []

    def slowly(**asked: object) -> object:
        now[0] += 2.0
        read.append(now[0])
        return abandoned(**asked)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "abandoned", slowly)
    looking = Sweep("default")

    def turn() -> bool:
        ends = now[0] + 1.0
        return looking.go_on(lambda: now[0] < ends)

    assert not turn()
    assert Job.objects.filter(pk__in=ids, state="running").count() == 3
    turn()

    assert Job.objects.filter(pk__in=ids, state="queued").count() == 3
    assert len(read) == 2, "once for the page, once to find that there is no more"


@pytest.mark.postgres
def test_locked_rows_are_counted_and_reported(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A row that somebody holds is skipped without waiting, counted, told once, and taken by a later look."""
    import psycopg

    held, *_ = lost(3)
    looking = Sweep("default")
    with psycopg.connect(database_url) as other:
        other.execute("SELECT 1 FROM django_jobs_job WHERE id = %s FOR NO KEY UPDATE", [held])
        with Told() as told, caplog.at_level(logging.WARNING):
            assert looking.go_on(lambda: True)
            assert looking.go_on(lambda: True)
        other.rollback()

    assert told.named("rescue.skipped") == [{"count": 1}, {"count": 1}]
    assert caplog.text.count("1 are locked by somebody") == 1
    assert Job.objects.filter(state="queued").count() == 2
    assert looking.go_on(lambda: True)
    assert Job.objects.filter(state="queued").count() == 3


def test_a_row_that_came_back_is_no_locked_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another reaper took meanwhile is not reported."""
    (pk,) = lost(1)

    def taken_by_another(item: rescue.Abandoned) -> bool:
        Job.objects.filter(pk=pk).update(
            state="queued", attempt_id=None, lease_owner=None, lease_child=None, lease_expires_at=None
        )
        return False

    monkeypatch.setattr(sweep, "take_back_one", taken_by_another)
    with Told() as told:
        Sweep("default").go_on(lambda: True)

    assert told.named("rescue.skipped") == []


def test_a_database_that_is_away_ends_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are not blamed for a connection that is gone; the look goes on later."""
    lost(2)
    monkeypatch.setattr(sweep, "take_back_one", _raise_lost)
    monkeypatch.setattr(sweep, "connections", {"default": _Gone()})

    with pytest.raises(OperationalError):
        Sweep("default").go_on(lambda: True)


class _Gone:
    def is_usable(self) -> bool:
        """Say no."""
        return False


def _raise_lost(_: object) -> bool:
    raise OperationalError("server closed the connection")


@pytest.mark.long
def test_ten_thousand_rows_that_raise_starve_nobody_r35(bad_rows_raise: None) -> None:
    """10,000 rows that raise, 50 normal ones behind them: the 50 recover by the same look."""
    many(10_000, BAD)
    normal = lost(50)

    assert Sweep("default").go_on(lambda: True)

    assert Job.objects.filter(pk__in=normal, state="queued").count() == 50
    assert Job.objects.filter(job_type=BAD, state="running").count() == 10_000


@pytest.mark.long
@pytest.mark.postgres
def test_ten_thousand_locked_rows_starve_nobody_r35(database_url: str) -> None:
    """The same with rows that somebody holds."""
    import psycopg

    many(10_000, BAD)
    normal = lost(50)
    with psycopg.connect(database_url) as other, Told() as told:
        other.execute("SELECT 1 FROM django_jobs_job WHERE job_type = %s FOR NO KEY UPDATE", [BAD])
        assert Sweep("default").go_on(lambda: True)
        assert Job.objects.filter(pk__in=normal, state="queued").count() == 50

    assert told.named("rescue.skipped") == [{"count": 10_000}]


def test_expired_leases_behind_silent_workers_have_their_turn() -> None:
    """Both kinds are paged on their own."""
    from tests.factories import WorkerFactory

    lost(2)
    alive = WorkerFactory()
    JobFactory(running=True, lease_owner=alive.pk, lease_expires_at=clock.now() - LEASE - timedelta(minutes=1))

    Sweep("default").go_on(lambda: True)

    causes = sorted(Attempt.objects.values_list("loss_cause", flat=True))
    assert causes == ["expired", "silent", "silent"]
