"""Children that have served long enough are replaced, and no job notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job, Worker
from django_jobs.operate.action import Operator
from django_jobs.operate.drain_worker import DrainWorker
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import row
from tests.acceptance.workers import Witness, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


def test_children_are_replaced_after_so_many_jobs(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """Thirty jobs by children of ten: three processes at least, each job once, none lost or given back."""
    row.enqueue_many([{"n": n} for n in range(30)])

    worker = make_worker(threads=2, arguments=("--recycle-jobs", "10", "--drain")).start()
    wait_until_done(seconds=60)

    assert wait_for(lambda: worker.process.poll() is not None, what="the end") is True
    assert worker.process.returncode == 0
    assert rows() == Counter(dict.fromkeys(range(30), 1))
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert len({line["pid"] for line in witness.lines("start")}) >= 3


@pytest.mark.postgres
def test_running_job_of_a_retiring_child_ends_by_itself(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A handler that takes longer than the grace is neither cut nor given back, and a stop still ends it in time."""
    row.using(priority=9).enqueue(n=1, seconds=6.0)
    row.enqueue_many([{"n": n} for n in range(2, 8)])

    make_worker(threads=2, arguments=("--recycle-jobs", "3", "--grace", "1")).start()
    wait_until_done(seconds=60)

    assert rows() == Counter(dict.fromkeys(range(1, 8), 1))
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"succeeded"}


@pytest.mark.postgres
def test_worker_that_was_asked_in_its_row_drains(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """An operator's decision stops a real worker: what runs ends, what waits stays, and it exits in good order."""
    row.enqueue_many([{"n": n, "seconds": 2.0} for n in range(6)])
    worker = make_worker(threads=2).start()
    wait_for(witness.busy, what="a running job")
    decision = DrainWorker(Worker.objects.get().pk, using="default")
    decision.submit(
        Operator(actor="ann", owner="shop", reason="its host goes away tonight"), digest=decision.plan().digest
    )

    wait_for(lambda: worker.process.poll() is not None, what="the end of the worker")

    assert worker.process.returncode == 0
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert Job.objects.filter(state="queued").exists()
