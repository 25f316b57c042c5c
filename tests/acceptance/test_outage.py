"""A database that goes away: workers outlive it, jobs succeed, and the log stays readable."""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from django_jobs.models import Job
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import backend, orm, row, work
from tests.acceptance.workers import Witness, pass_time, wait_for
from tests.clusters import Cluster

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
OUTAGE = re.compile(r"^(\S+ \S+) WARNING (\d+) django_jobs\.worker: The database does not answer", re.MULTILINE)


def outage_lines(text: str) -> dict[str, list[datetime]]:
    """Return the times of the lines about outages, by process."""
    found: dict[str, list[datetime]] = {}
    for at, process in OUTAGE.findall(text):
        found.setdefault(process, []).append(datetime.strptime(f"{at}+0000", "%Y-%m-%d %H:%M:%S,%f%z"))
    return found


def gaps(times: list[datetime]) -> list[float]:
    """Return the seconds between neighbours."""
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]


def end_connections() -> None:
    """Terminate every other connection to the test database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


@pytest.mark.postgres
def test_f06_terminated_connections_cost_no_job_and_no_process(make_worker: MakeWorker, rows: Rows) -> None:
    """All connections ended three times: the same processes go on and every job succeeds, each row once."""
    run_with_ended_connections(make_worker, rows, turns=3, every=1.0)


@pytest.mark.slow
@pytest.mark.postgres
def test_f06_connections_ended_for_ten_seconds_cost_no_job(make_worker: MakeWorker, rows: Rows) -> None:
    """The same every 2 s for 10 s."""
    run_with_ended_connections(make_worker, rows, turns=5, every=2.0)


def run_with_ended_connections(make_worker: MakeWorker, rows: Rows, *, turns: int, every: float) -> None:
    """End all connections again and again while jobs run; nothing is lost or doubled, and no process ends."""
    row.enqueue_many([{"n": n, "seconds": 0.1} for n in range(60)])
    work.enqueue_many([{"n": n, "seconds": 0.1} for n in range(60, 120)])
    orm.enqueue_many([{"n": n, "seconds": 0.1} for n in range(1000, 1020)])
    worker = make_worker(threads=2).start().wait_ready()
    before = worker.group()

    for turn in range(turns):
        pass_time(every)
        end_connections()
        row.enqueue_many([{"n": 2000 + 10 * turn + n} for n in range(10)])
    wait_until_done(seconds=60)

    assert worker.group() == before
    assert states() == {"succeeded": 140 + 10 * turns}
    once = {n: count for n, count in rows().items() if 0 <= n < 1000 or n >= 2000}
    assert once == dict.fromkeys([*range(120), *range(2000, 2000 + 10 * turns)], 1)
    assert set(range(1000, 1020)) <= set(rows())


@pytest.mark.postgres
def test_f09_restarted_server_is_found_again(own_server: Cluster, make_worker: MakeWorker, witness: Witness) -> None:
    """Immediate restarts under load: same processes, every job succeeds, work flows again within 5 s, few log lines."""
    work.enqueue_many([{"n": n, "seconds": 0.05} for n in range(40)])
    worker = make_worker(database_url=own_server.url(), threads=2).start().wait_ready()
    wait_for(lambda: witness.lines("start"), what="the first start")
    before, flows = worker.group(), []

    for turn in range(2):
        own_server.restart(mode="immediate")
        ready = time.monotonic()
        connections.close_all()
        work.enqueue_many([{"n": 100 + 10 * turn + n} for n in range(10)])
        again = wait_for(lambda since=ready: [line for line in witness.lines("end") if line["at"] > since])
        flows.append(again[0]["at"] - ready)
    wait_until_done(seconds=60)

    print(f"\nwork flowed again {', '.join(f'{flow:.2f} s' for flow in flows)} after the server was back")
    assert max(flows) <= 5
    assert worker.group() == before
    assert states() == {"succeeded": 60}
    assert all(gap >= 10 for times in outage_lines(worker.text).values() for gap in gaps(times)), worker.text


@pytest.mark.slow
@pytest.mark.postgres
def test_f08_hanging_server_does_not_keep_a_worker_from_stopping(own_server: Cluster, make_worker: MakeWorker) -> None:
    """A frozen server answers nothing: TERM is still passed on, and the worker ends in its time."""
    worker = make_worker(database_url=own_server.url(), arguments=("--grace", "1")).start().wait_ready()
    own_server.pause()
    try:
        pass_time(1.5)  # a poll hangs by now
        worker.term()
        worker.wait(seconds=25)
    finally:
        own_server.resume()

    assert not worker.is_running()


@pytest.mark.postgres
@pytest.mark.parametrize("pool", [False, True], ids=["no-pool", "pool"])
def test_each_thread_has_a_connection_of_its_own_r60(
    make_worker: MakeWorker, witness: Witness, database_url: str, pool: bool
) -> None:
    """The database was used before the children started: each thread has its own server process, with no error."""
    backend.enqueue_many([{"n": n, "queries": 25} for n in range(16)])
    url = f"{database_url}?pool=true" if pool else database_url
    worker = make_worker(database_url=url, threads=2, processes=2).start()

    wait_until_done(seconds=30)

    assert states() == {"succeeded": 16}
    lines = witness.lines("backend")
    servers = {(line["pid"], line["thread"]): set() for line in lines}
    for line in lines:
        servers[(line["pid"], line["thread"])].add(line["server"])
    assert all(len(found) == 1 for found in servers.values()), "a thread keeps its connection"
    assert len({line["server"] for line in lines}) == len(servers) >= 3, "and shares it with nobody"
    assert "does not answer" not in worker.text


def hold_write_lock(path: Path, seconds: float) -> None:
    """Hold SQLite's write lock from outside for a time."""
    other = sqlite3.connect(path, timeout=30, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    pass_time(seconds)
    other.execute("ROLLBACK")
    other.close()


def run_locked(make_worker: MakeWorker, rows: Rows, database_url: str, *, seconds: float, times: dict[str, str]) -> Any:
    """Run 3 workers while another process holds the write lock three times; return the workers."""
    work.enqueue_many([{"n": n, "seconds": 0.05} for n in range(60)])
    row.enqueue_many([{"n": n} for n in range(60, 120)])
    workers = [make_worker(threads=2, times=times).start() for _ in range(3)]
    wait_for(lambda: sum(rows().values()) >= 5, what="the first rows")
    for _ in range(3):
        hold_write_lock(Path(database_url.removeprefix("sqlite:///")), seconds)
        done = sum(rows().values())
        wait_for(lambda done=done: sum(rows().values()) > done or "queued" not in states())
    wait_until_done(seconds=60)
    assert all(worker.is_running() for worker in workers)
    assert rows() == dict.fromkeys(range(120), 1)
    assert states() == {"succeeded": 120}
    return workers


@pytest.mark.sqlite
def test_foreign_write_lock_stops_nothing_for_good_r63(make_worker: MakeWorker, rows: Rows, database_url: str) -> None:
    """Three locks of 1.5 s by another process while 3 workers run: no crash, every completion stored."""
    workers = run_locked(make_worker, rows, database_url, seconds=1.5, times={})

    assert all("Traceback" not in worker.text for worker in workers)


@pytest.mark.slow
@pytest.mark.sqlite
def test_write_lock_beyond_the_busy_timeout_is_outlived_r63(
    make_worker: MakeWorker, rows: Rows, database_url: str
) -> None:
    """Three locks of 8 s, longer than SQLite waits: no crash, every completion stored, one warning per episode."""
    workers = run_locked(make_worker, rows, database_url, seconds=8.0, times={})

    for worker in workers:
        assert "Traceback" not in worker.text
        assert all(len(times) <= 3 for times in outage_lines(worker.text).values()), worker.text
    assert not Job.objects.filter(lost_count__gt=0).exists()
