"""F16: a handler that takes more memory than there is."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import row
from tests.acceptance.workers import Witness, WorkerProcess, wait_for
from tests.scenarios.handlers import MEGABYTE, eats_memory, limited_memory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

Rows = Callable[[], Counter[int]]
IMPORTS = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.scenarios.handlers"}
TOO_MUCH = 300 * MEGABYTE


def resident(pid: int) -> int:
    """Return how many bytes a process holds in memory; none when it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


@contextmanager
def kernel(worker: WorkerProcess) -> Iterator[list[int]]:
    """End each child that holds too much, with SIGKILL, as the kernel does when memory is short; gives whom."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            for pid in worker.child_pids:
                if resident(pid) > TOO_MUCH and pid not in killed:
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join(timeout=10)


def test_f16_memory_error_is_a_recorded_failure(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A limit of the address space: MemoryError ends the attempt with its type, and the same process serves on."""
    job_id = limited_memory.enqueue(megabytes=4096).id
    worker = make_worker(threads=1, env=IMPORTS).start()
    wait_for(lambda: witness.lines("start"), seconds=60, what=f"the start: {worker.text}")
    row.enqueue(n=1)

    wait_until_done(seconds=40)

    job, attempt = Job.objects.get(pk=job_id), Attempt.objects.get(job_id=job_id)
    assert (attempt.outcome, attempt.error_type, attempt.error_class) == ("failed", "MemoryError", "unknown")
    assert (job.state, job.dead_reason, job.lost_count) == ("dead_lettered", "unknown_budget", 0)
    assert {line["pid"] for line in witness.lines("start")} == {witness.lines("start")[0]["pid"]}
    assert rows() == {1: 1}


@pytest.mark.postgres
def test_f16_job_that_is_killed_for_its_memory_is_convicted_as_poison(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Killed three times, the last time alone in its child: poison with the signal; neighbours lose time and nothing else."""
    row.enqueue_many([{"n": n} for n in range(20)])
    job_id = eats_memory.using(priority=5).enqueue(megabytes=600).id
    row.enqueue_many([{"n": n} for n in range(20, 40)])
    worker = make_worker(threads=2, processes=2, env=IMPORTS).start()

    with kernel(worker) as killed:
        wait_until_done(seconds=100)

    job, deaths = Job.objects.get(pk=job_id), list(Attempt.objects.filter(job_id=job_id).order_by("number"))
    assert len(killed) == 3
    assert (job.state, job.dead_reason, job.exit_lost_count) == ("dead_lettered", "poison", 3)
    assert [(attempt.outcome, attempt.loss_cause, attempt.exit_status) for attempt in deaths] == [
        ("lost", "exit", -9)
    ] * 3
    assert deaths[-1].alone, "only a death without company convicts"
    assert set(Job.objects.exclude(pk=job_id).values_list("state", flat=True)) == {"succeeded"}
    assert rows() == Counter(dict.fromkeys(range(40), 1))
