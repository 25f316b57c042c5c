"""F11: PgBouncer in transaction mode that is paused, short of sessions or loses them; no session keeps anything of a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from django.db import connection

from django_jobs.models import Job
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import everything, row, work
from tests.acceptance.workers import Witness, WorkerProcess, pass_time, wait_for
from tests.databases import Server
from tests.poolers import Pooler

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.pgbouncer]

Rows = Callable[[], Counter[int]]
ENV = {"JOBS_TRANSACTION_POOLER": "True"}


def busy_worker(make_worker: MakeWorker, witness: Witness, pooler: Pooler) -> WorkerProcess:
    """Start a worker behind the pooler with 60 jobs, and wait until some have ended."""
    row.enqueue_many([{"n": n, "seconds": 0.05} for n in range(0, 60, 2)])
    work.enqueue_many([{"n": n, "seconds": 0.05} for n in range(1, 60, 2)])
    worker = make_worker(database_url=pooler.url, threads=2, processes=2, env=ENV).start().wait_ready(seconds=180)
    wait_for(lambda: witness.lines("end"), what="the first end")
    return worker


def check_all_once(worker: WorkerProcess, before: list[int], rows: Rows) -> None:
    """The same processes, and every job succeeded once."""
    wait_until_done(seconds=120)
    assert worker.group() == before, worker.text
    assert states() == {"succeeded": 60}
    assert rows() == Counter(dict.fromkeys(range(60), 1))
    assert not Job.objects.filter(lost_count__gt=0).exists()


def test_f11_pause_and_resume(make_worker: MakeWorker, witness: Witness, rows: Rows, pooler: Pooler) -> None:
    """Three pauses of two seconds: everybody waits, and goes on."""
    worker = busy_worker(make_worker, witness, pooler)
    before = worker.group()
    for _ in range(3):
        pooler.order("PAUSE")
        pass_time(2)
        pooler.order("RESUME")
        pass_time(0.5)

    check_all_once(worker, before, rows)


def test_f11_sessions_of_the_server_are_lost(
    make_worker: MakeWorker, witness: Witness, rows: Rows, pooler: Pooler
) -> None:
    """The server ends the pooler's sessions, and the pooler makes new ones: no process ends, and no job is lost."""
    worker = busy_worker(make_worker, witness, pooler)
    before = worker.group()
    with connection.cursor() as cursor:
        for _ in range(3):
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            pass_time(0.5)
    pooler.order("RECONNECT")

    check_all_once(worker, before, rows)
    print(f"\nF11: attempts {dict(outcomes())}")


def test_f11_fewer_sessions_than_threads(make_worker: MakeWorker, witness: Witness, rows: Rows, server: Server) -> None:
    """One session for four threads and their loops: they take turns, and every job succeeds once."""
    with Pooler(server.url, pool_size=1) as narrow:
        worker = busy_worker(make_worker, witness, narrow)
        check_all_once(worker, worker.group(), rows)
        worker.term()
        assert worker.wait(seconds=60) == 0


def test_f11_session_is_the_same_before_and_after_jobs(
    make_worker: MakeWorker, witness: Witness, rows: Rows, server: Server
) -> None:
    """SHOW ALL of the only session, before and after jobs of every kind: nothing differs, and nothing is left behind."""
    with Pooler(server.url, pool_size=1) as narrow:
        before = narrow.session()
        everything.enqueue_many([{"n": n} for n in range(10)])
        worker = make_worker(database_url=narrow.url, threads=2, env=ENV).start()
        wait_until_done(seconds=120)
        worker.term()
        assert worker.wait(seconds=60) == 0
        after = narrow.session()

        assert after == before
        assert narrow.left_behind() == []
    assert states() == {"succeeded": 20}
