"""A worker that runs for long: its memory and its connections stay what they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from django_jobs.models import Job
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import backend, row
from tests.acceptance.workers import Witness, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
THREADS, JOBS, WARM_UP, QUERIES = 8, 3000, 1000, 40
MEGABYTE = 1024 * 1024


def most_connections(*, threads: int, processes: int = 1, schedules: bool = False) -> int:
    """Return what docs/how-to/run-workers.md promises: threads, a child's loop, its events, heart, ear and schedules."""
    return processes * (threads + 2) + 2 + schedules


def memory_of(pid: int) -> int:
    """Return the bytes that a process holds in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process has gone")


def backends() -> int:
    """Return how many other connections this database serves."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.long
@pytest.mark.postgres
def test_memory_and_connections_do_not_grow_with_debug_r61(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """DEBUG, 8 threads, 3,000 jobs: less than 20 MB more after a warm-up, at most 11 connections, none after the stop."""
    before = backends()
    row.enqueue_many([{"n": n} for n in range(WARM_UP)])
    backend.enqueue_many([{"n": n, "queries": QUERIES} for n in range(WARM_UP, JOBS)])
    worker = make_worker(threads=THREADS, env={"DEBUG": "true"}, arguments=("--no-reload",)).start().wait_ready()
    (child,) = worker.child_pids
    seen = [backends()]

    def has_run(number: int) -> bool:
        seen.append(backends())
        return Job.objects.filter(state="succeeded").count() >= number

    wait_for(lambda: has_run(WARM_UP), seconds=300, what="the warm-up")
    warm, warm_supervisor = memory_of(child), memory_of(worker.pid)
    wait_for(lambda: has_run(JOBS), seconds=600, what="the rest")
    wait_until_done(seconds=30)

    grown, grown_supervisor = memory_of(child) - warm, memory_of(worker.pid) - warm_supervisor
    print(f"child {warm / MEGABYTE:.1f} MB + {grown / MEGABYTE:.1f} MB, at most {max(seen) - before} connections")
    assert grown < 20 * MEGABYTE
    assert grown_supervisor < 20 * MEGABYTE
    assert max(seen) - before <= most_connections(threads=THREADS)
    worker.term()
    assert worker.wait(seconds=30) == 0
    wait_for(lambda: backends() == before, seconds=10, what="the end of its connections")


@pytest.mark.postgres
def test_worker_has_the_connections_that_the_manual_counts(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Two children with three busy threads each: one connection per thread, loop and dispatcher, two for the supervisor."""
    before, bound = backends(), most_connections(threads=3, processes=2)
    seen: list[int] = []

    def all_there() -> bool:
        seen.append(backends() - before)
        return seen[-1] == bound

    backend.enqueue_many([{"n": n} for n in range(300)])
    worker = make_worker(threads=3, processes=2).start()

    worker.wait_for(all_there, seconds=150, what="a connection of every thread")
    wait_until_done(seconds=60)
    seen.append(backends() - before)

    assert max(seen) == bound
    worker.term()
    assert worker.wait(seconds=30) == 0


@pytest.mark.long
@pytest.mark.postgres
def test_worker_with_schedules_has_one_connection_more(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """An idle worker that serves a schedule every second: its loops, the heart, the ear and one for the schedules."""
    before = backends()
    worker = make_worker(threads=1, env={"JOBS_IMPORTS": "tests.acceptance.scheduled_handlers"}).start()
    seen: list[int] = []

    def has_run() -> bool:
        seen.append(backends() - before)
        return Job.objects.filter(state="succeeded").count() >= 5

    worker.wait_for(has_run, seconds=150, what="five ticks")
    assert max(seen) <= most_connections(threads=1, schedules=True)
    worker.term()
    assert worker.wait(seconds=30) == 0
