"""Measure and print: idle pick-up, enqueue, drain and the limit line, on a PostgreSQL of its own; or on the one that is named.

python -m tests.benchmarks [--jobs 3000] [--url postgres://…/empty_database]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable

from tests.benchmarks import crowd_enqueue, fault_points, limit, pickup
from tests.clusters import Cluster, find_binaries


def measure(url: str, jobs: int) -> None:
    """Run everything against one empty database."""
    os.environ.update(
        DATABASE_URL=url, DJANGO_SETTINGS_MODULE="testproject.settings", JOBS_IMPORTS="tests.benchmarks.handlers"
    )
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    pickup.measure()
    fault_points.measure()
    _empty()
    crowd_enqueue.measure(2 * jobs)
    _empty()
    _enqueue(url, jobs)
    for processes in (1, 2):
        bare = limit.rate(url, rows=jobs, threads=4 * processes)
        for name in ("noop", "insert"):
            _print(f"drain {name}, {processes} process(es) x 4 threads", _drain(name, jobs, processes), bare)


def _enqueue(url: str, jobs: int) -> None:
    from tests.benchmarks.handlers import noop

    bare = limit.insert_rate(url, rows=jobs)
    _print("enqueue one by one", _rate(lambda: [noop.enqueue(number=n) for n in range(jobs // 2)], jobs // 2), bare)
    _print("enqueue_many", _rate(lambda: noop.enqueue_many({"number": n} for n in range(jobs)), jobs), bare)
    _empty()


def _rate(action: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    action()
    return count / (time.perf_counter() - began)


def _drain(name: str, jobs: int, processes: int) -> float:
    from django.db import connection

    from tests.benchmarks import handlers

    _empty()
    getattr(handlers, name).enqueue_many({"number": n} for n in range(jobs))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE django_jobs_job")
    command = [sys.executable, "manage.py", "runworker", "--drain", "--threads", "4", "--processes", str(processes)]
    subprocess.run(command, check=True, timeout=600)
    with connection.cursor() as cursor:  # from the first claim to the last success: start-up does not count
        cursor.execute(
            "SELECT count(*) / extract(epoch FROM max(finished_at) - min(started_at)) FROM django_jobs_attempt "
            "WHERE outcome = 'succeeded'"
        )
        return float(cursor.fetchone()[0])


def _empty() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "TRUNCATE django_jobs_job, django_jobs_jobpayload, django_jobs_attempt, django_jobs_idempotencykey, auth_group CASCADE"
        )


def _print(what: str, rate: float, bare: float) -> None:
    print(f"{what:45} {rate:8.0f}/s   limit line {bare:8.0f}/s   ratio {rate / bare:5.2f}", flush=True)


def main() -> None:
    """Read the arguments, and start a server unless one is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--url", default="")
    arguments = parser.parse_args()
    if arguments.url:
        measure(arguments.url, arguments.jobs)
        return
    with Cluster(binaries=find_binaries()[0]) as cluster:
        print(f"PostgreSQL {cluster.binaries.version}, without fsync", flush=True)
        measure(cluster.url(), arguments.jobs)


if __name__ == "__main__":
    main()
