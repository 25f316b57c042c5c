"""F17: seven handlers that do the worst to their process, among two hundred that do their work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker
from tests.acceptance.handlers import row
from tests.acceptance.workers import Witness, WorkerProcess, wait_for
from tests.scenarios.handlers import poison

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
IMPORTS = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.scenarios.handlers"}
NEIGHBOURS, TAKES = 200, 0.4
# What is left to read of each: an exit status for those that end their process, an error for those that do not.
DEATHS = {"segfault": -11, "abort": -6, "exit0": 0}
ERRORS = {
    "recursion": "RecursionError",
    "sys.exit": "SystemExit",
    "interrupt": "KeyboardInterrupt",
    "for-ever": "HardTimeoutError",
}


def start(make_worker: MakeWorker) -> WorkerProcess:
    """Start a worker of two children with four threads each, and wait until both serve."""
    return make_worker(threads=4, processes=2, env=IMPORTS).start().wait_ready()


def seconds_for_neighbours(first: int) -> float:
    """Enqueue the neighbours, wait for their end, and return how long that took."""
    began = time.monotonic()
    row.enqueue_many([{"n": n, "seconds": TAKES} for n in range(first, first + NEIGHBOURS)])
    waiting = Job.objects.filter(job_type="acceptance.row").exclude(state="succeeded")
    wait_for(lambda: not waiting.exists(), seconds=200, what="the neighbours")
    return time.monotonic() - began


@pytest.mark.long
@pytest.mark.postgres
def test_f17_poison_is_convicted_after_three_deaths_and_takes_nobody_along(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """At most three deaths each, with signal or exit code; all 200 neighbours succeed; their pace is printed."""
    worker = start(make_worker)
    usual = seconds_for_neighbours(0)
    ids = {how: poison.using(priority=5).enqueue(how=how).id for how in (*DEATHS, *ERRORS)}

    beside = seconds_for_neighbours(NEIGHBOURS)
    poisoned = Job.objects.filter(pk__in=ids.values())
    wait_for(lambda: poisoned.filter(state="dead_lettered").count() == len(ids), seconds=100, what="the verdicts")

    for how, status in DEATHS.items():
        job, deaths = Job.objects.get(pk=ids[how]), list(Attempt.objects.filter(job_id=ids[how]).order_by("number"))
        assert (job.dead_reason, job.exit_lost_count, job.fence) == ("poison", 3, 3), how
        assert {(item.outcome, item.loss_cause) for item in deaths} == {("lost", "exit")}
        # An earlier one may have been the death of a child in which another of them ran as well.
        assert (deaths[-1].exit_status, deaths[-1].alone != "") == (status, True), how
    for how, error in ERRORS.items():
        (attempt,) = Attempt.objects.filter(job_id=ids[how], outcome="failed")
        assert attempt.error_type.rpartition(".")[2] == error, how
        assert Job.objects.get(pk=ids[how]).dead_reason == "unknown_budget"
    assert set(Job.objects.exclude(pk__in=ids.values()).values_list("state", flat=True)) == {"succeeded"}
    assert rows() == Counter(dict.fromkeys(range(2 * NEIGHBOURS), 1))
    hit = Attempt.objects.filter(outcome="lost").exclude(job_id__in=ids.values()).count()
    children = {line["pid"] for line in witness.lines("start")}
    print(
        f"\n{NEIGHBOURS} neighbours: {usual:.1f} s alone, {beside - usual:.1f} s more beside seven poisonous jobs; "
        f"{hit} of their attempts were lost with {len(children) - 2} children, and ran again"
    )
    assert worker.is_running()
