"""What fault points cost where none is armed: nanoseconds per point, points per job, and their share of a job's time."""

from __future__ import annotations

import timeit
import uuid

from django_jobs import faults

CALLS = 1_000_000


def measure(jobs: int = 500) -> None:
    """Run jobs in this process, one after the other, and print."""
    from django.db import connection

    from django_jobs.worker.connection import keep_connections
    from tests.benchmarks.handlers import noop

    keep_connections("default")
    connection.close()
    noop.enqueue_many({"number": n} for n in range(2 * jobs))
    with faults.recorded() as seen:
        _run(jobs)
    seconds = timeit.timeit(lambda: _run(jobs), number=1) / jobs
    empty = timeit.timeit("pass", number=CALLS)
    each = (timeit.timeit(lambda: faults.reached("claim.before", using="default"), number=CALLS) - empty) / CALLS
    look = (timeit.timeit("faults.plan is None", globals={"faults": faults}, number=CALLS) - empty) / CALLS
    points = len(seen) / jobs
    print(
        f"fault points: {each * 1e9:.0f} ns a call, {look * 1e9:.0f} ns a look around a statement, {points:.1f} points a "
        f"job, {seconds * 1e6:.0f} us a job: at most {100 * points * each / seconds:.3f} % of it",
        flush=True,
    )


def _run(jobs: int) -> None:
    from django_jobs.worker.claiming import Claimer
    from django_jobs.worker.config import WorkerConfig
    from django_jobs.worker.execute import execute

    config = WorkerConfig(
        worker_id=str(uuid.uuid4()),
        name="benchmark",
        database="default",
        queues=(),
        threads=1,
        processes=1,
        grace=5,
        poll=1,
    )
    claimer = Claimer(config)
    done = 0
    while done < jobs:
        found = claimer.take(1, 0)
        assert found, "jobs are there"
        for attempt in found:
            execute(attempt)
            done += 1
