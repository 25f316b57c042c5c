"""F8: a network that swallows everything for a while or for good, and one that resets every connection."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from django_jobs.models import Attempt, Job, Worker
from django_jobs.testing.proxy import PostgresProxy
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import row, short_lease, work
from tests.acceptance.test_blind import SOON, wait_for_state
from tests.acceptance.workers import QUICK, Witness, pass_time, wait_for
from tests.scenarios.handlers import waits_first

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Rows = Callable[[], Counter[int]]


def enqueue(first: int, *, many: int, seconds: float = 0.05) -> None:
    """Store jobs of both kinds of handler."""
    row.enqueue_many([{"n": n, "seconds": seconds} for n in range(first, first + many, 2)])
    work.enqueue_many([{"n": n, "seconds": seconds} for n in range(first + 1, first + many, 2)])


def hole(
    proxy: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows, tmp_path: Path, *, seconds: float
) -> None:
    """Swallow everything for so long while jobs run; assert that the same processes go on and each job ends once."""
    path = tmp_path / "heartbeat.json"
    times = SOON if seconds < 30 else {}
    arguments = ("--heartbeat-file", str(path))
    worker = (
        make_worker(database_url=proxy.url, threads=2, times=times, arguments=arguments).start().wait_ready(seconds=180)
    )
    enqueue(0, many=20)
    wait_for(lambda: witness.lines("end"), what="the first end")
    before = worker.group()

    proxy.blackhole()
    began = time.monotonic()
    if seconds > 4:
        wait_for_state(path, "blind", seconds=60)
    pass_time(max(0.0, seconds - (time.monotonic() - began)))
    proxy.restore()
    back = time.monotonic()
    enqueue(100, many=10)
    first = wait_for(lambda: [line for line in witness.lines("end") if line["at"] > back], what="work")[0]
    wait_until_done(seconds=120)

    print(f"\nF8: nothing passed for {back - began:.0f} s, work flowed {first['at'] - back:.2f} s later; {outcomes()}")
    assert first["at"] - back <= 5
    assert worker.group() == before, worker.text
    assert states() == {"succeeded": 30}
    assert rows() == Counter(dict.fromkeys([*range(20), *range(100, 110)], 1))
    assert not Job.objects.filter(lost_count__gt=0).exists()


def other_sessions() -> int:
    """Return how many sessions the test database has beside this one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.long
def test_f08_nothing_passes_for_five_seconds(
    proxy: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows, tmp_path: Path
) -> None:
    """Five seconds: the same processes, every job once, and work flows again within five seconds."""
    hole(proxy, make_worker, witness, rows, tmp_path, seconds=5)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_f08_nothing_passes_for_a_minute(
    proxy: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows, tmp_path: Path
) -> None:
    """A minute, at default times."""
    hole(proxy, make_worker, witness, rows, tmp_path, seconds=60)


@pytest.mark.long
def test_f08_connections_that_died_silently_are_left(
    proxy: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """What was open passes nothing any more, what is opened now does: loops leave it by a limit, handlers by the lease.

    A handler that hangs in a statement cannot be stopped, so its child is replaced; the worker stays.
    """
    worker = make_worker(database_url=proxy.url, threads=2).start().wait_ready(seconds=180)
    enqueue(0, many=10)
    wait_until_done(seconds=60)

    proxy.blackhole(new=False)
    cut = time.monotonic()
    short_lease.enqueue_many([{"n": n} for n in range(10, 20)])
    first = wait_for(lambda: [line for line in witness.lines("end") if line["at"] > cut], seconds=90, what="work")[0]
    wait_until_done(seconds=120)

    print(f"\nF8: work flowed {first['at'] - cut:.1f} s after every open connection had died silently; {outcomes()}")
    assert worker.is_running(), worker.text
    assert states() == {"succeeded": 20}
    assert rows() == Counter(dict.fromkeys(range(20), 1))
    assert not Job.objects.filter(lost_count__gt=0).exists()


@pytest.mark.long
def test_f08_worker_in_a_hole_for_good_is_replaced_and_still_ends(
    proxy: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Its job is not given away before it was silent long enough; another worker runs it; TERM ends the one in the hole.

    When the network is back, what lay in it arrives, and changes nothing.
    """
    env = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.scenarios.handlers"}
    job_id = waits_first.enqueue(n=1, first=3.0).id  # so long that the hole is there first, on a busy machine too
    arguments = ("--grace", "1", "--name", "holed")
    worker = make_worker(database_url=proxy.url, threads=1, arguments=arguments, env=env).start()
    worker.wait_for(lambda: witness.lines("start"), seconds=120, what="the start")
    proxy.blackhole()
    assert not witness.lines("woken"), "the handler was done before the hole was there"
    other = make_worker(threads=1, arguments=("--name", "other"), env=env).start()
    wait_until_done(seconds=90)

    first, second = Attempt.objects.filter(job_id=job_id).order_by("number")
    assert (first.outcome, second.outcome) == ("lost", "succeeded")
    assert (first.worker_name, second.worker_name) == ("holed", "other")
    heard_last = Worker.objects.get(name="holed").heartbeat_at
    assert second.started_at - heard_last >= timedelta(seconds=float(QUICK["JOBS_SILENT_AFTER"])), "judged too early"
    assert rows() == {1: 1}
    assert worker.is_running(), worker.text
    for each in (worker, other):
        each.term()
        each.wait(seconds=60)
    proxy.restore()
    wait_for(lambda: not other_sessions(), seconds=60, what="the end of what lay in the network")
    assert states() == {"succeeded": 1}
    assert rows() == {1: 1}


@pytest.mark.long
def test_f08_every_connection_reset_under_load(
    proxy: PostgresProxy, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Reset three times while jobs run: the same processes, and every job succeeds once."""
    enqueue(0, many=60)
    worker = make_worker(database_url=proxy.url, threads=2, processes=2, times=QUICK).start().wait_ready(seconds=180)
    before = worker.group()
    for turn in range(3):
        done = len(witness.lines("end"))
        proxy.reset_all()
        enqueue(100 + 10 * turn, many=10)
        wait_for(lambda done=done: len(witness.lines("end")) >= done + 5, seconds=60, what="work after the reset")
    wait_until_done(seconds=120)

    assert worker.group() == before, worker.text
    assert states() == {"succeeded": 90}
    assert rows() == Counter(dict.fromkeys([*range(60), *range(100, 130)], 1))
