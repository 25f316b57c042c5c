"""How long an idle worker takes to start a job after its commit, and how many statements it costs to wait."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

SAMPLES = 60
IDLE_FOR = 10.0  # seconds


def measure(samples: int = SAMPLES) -> None:
    """Print both figures, with notifications and with polling."""
    for notify in (True, False):
        how = "NOTIFY" if notify else "polling"
        with _worker(notify=notify):
            times = sorted(_samples(samples if notify else samples // 3))
            calls = _idle_calls()
        middle, late = statistics.median(times), times[int(len(times) * 0.95)]
        print(
            f"idle pick-up with {how:8} p50 {middle:8.1f} ms   p95 {late:8.1f} ms   idle {calls:5.1f} statements/s",
            flush=True,
        )


@contextmanager
def _worker(*, notify: bool) -> Iterator[None]:
    from tests.benchmarks.handlers import noop

    command = [sys.executable, "manage.py", "runworker", "--threads", "4"]
    process = subprocess.Popen(command, env={**os.environ, "JOBS_NOTIFY": str(notify)})
    try:
        for number in range(5):  # it has started when these are done
            _started(noop.enqueue(number=number).id)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _samples(count: int) -> Iterator[float]:
    """Yield milliseconds from the statement that stores the job to its claim, both on the database's clock."""
    from tests.benchmarks.handlers import noop

    for number in range(count):
        time.sleep(0.4 + random.random())  # it must have gone to sleep, and polls must not be in phase with this
        created, started = _started(noop.enqueue(number=number).id)
        yield (started - created).total_seconds() * 1000


def _started(job_id: object) -> tuple[datetime, datetime]:
    from django_jobs.models import Attempt

    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        found = Attempt.objects.filter(job_id=job_id).values_list("job__created_at", "started_at").first()
        if found is not None:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"job {job_id} was not started")


def _idle_calls() -> float:
    """Return how many transactions per second a waiting worker makes; each of its statements is one, or nearly."""
    from django.db import connection

    def read() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
            )
            return int(cursor.fetchone()[0])

    time.sleep(2)
    before, began = read(), time.monotonic()
    time.sleep(IDLE_FOR)
    return (read() - before - 2) / (time.monotonic() - began)
