"""A job that ends its process is convicted after few deaths, and its neighbours are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import fails, killer, late, loud, row
from tests.acceptance.workers import Witness, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
STATUS = {"sigkill": -9, "exit0": 0, "exit7": 7, "segfault": -11}
WAYS = {"sqlite": ("sigkill", "exit0"), "postgresql": ("exit7", "segfault")}


def test_f17_jobs_that_kill_their_process_are_convicted_and_nobody_else_r31(
    make_worker: MakeWorker, witness: Witness, rows: Rows, vendor: str
) -> None:
    """Jobs that end their process: three deaths each, counted on the job, dead-lettered as poison; 50 others succeed."""
    row.enqueue_many([{"n": n} for n in range(25)])
    ids = {how: killer.using(priority=5).enqueue(how=how).id for how in WAYS[vendor]}
    row.enqueue_many([{"n": n} for n in range(25, 50)])

    make_worker(threads=2, processes=2).start()
    wait_until_done(seconds=90)

    assert rows() == Counter(dict.fromkeys(range(50), 1))
    for how, job_id in ids.items():
        job = Job.objects.get(pk=job_id)
        deaths = list(Attempt.objects.filter(job_id=job_id).order_by("number"))
        assert (job.state, job.dead_reason) == ("dead_lettered", "poison"), how
        assert [attempt.number for attempt in deaths] == [1, 2, 3]
        assert (job.lost_count, job.exit_lost_count, job.fence) == (3, 3, 3)
        assert deaths[-1].exit_status == STATUS[how]
        assert {attempt.outcome for attempt in deaths} == {"lost"}
        assert deaths[-1].alone, "only a death without company convicts"
    assert set(Job.objects.exclude(pk__in=ids.values()).values_list("state", flat=True)) == {"succeeded"}


def test_limits_hold_for_exceptions_and_timeouts_r33(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A job that only raises ends after its budget of attempts, one that only overruns its lease after its own."""
    raising = fails.enqueue(n=1).id
    overrunning = late.enqueue(n=2, seconds=600).id

    make_worker(threads=2).start()
    wait_until_done(seconds=40)

    assert Job.objects.get(pk=raising).dead_reason == "unknown_budget"
    assert len(witness.lines("start", n=1)) == 3
    job = Job.objects.get(pk=overrunning)
    assert (job.dead_reason, job.lost_count) == ("unknown_budget", 0)
    attempt = Attempt.objects.get(job_id=overrunning)
    assert attempt.error_type.endswith("HardTimeoutError")


@pytest.mark.sqlite
def test_output_of_a_killed_child_is_kept(make_worker: MakeWorker, rows: Rows) -> None:
    """What a handler printed before its process was killed stands in the worker's output."""
    loud.enqueue(n=7)
    worker = make_worker(threads=1).start()

    wait_for(lambda: "printed by 7" in worker.text, what="the output")

    assert "ended with status -9" in wait_for(lambda: "status -9" in worker.text and worker.text)
