"""F6: sessions that the server ends before or after each statement: no process ends, and handlers' connections recover."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from django_jobs.models import Job
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import orm, row, work
from tests.acceptance.test_outage import end_connections
from tests.acceptance.workers import QUICK, Witness, pass_time, wait_for
from tests.crash.cells import Cell, cells
from tests.crash.harness import Matrix
from tests.crash.table import DYING, PAYING, PLAIN, PROGRESSING, ROW

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Rows = Callable[[], Counter[int]]
TURNS, EVERY = 10, 2.0
PATIENT = {**QUICK, "JOBS_SILENT_AFTER": "60"}  # on a busy machine nobody is silent for want of processor time
FEW = {
    *(("claim.before", ROW), ("claim.after_commit", ROW), ("renew.before", PROGRESSING), ("renew.after", PROGRESSING)),
    *(("effect.before_intent", PAYING), ("effect.after_intent", PAYING), ("effect.after_call", PAYING)),
    *(("finish.before", PLAIN), ("finish.after_commit", ROW), ("reap.after_update", DYING)),
}


def run_in_one_process(matrix: Matrix, chosen: Iterable[Cell]) -> None:
    """Run the cells; each leaves the processes of the worker alone, but for a child whose job ends it on purpose."""
    for cell in chosen:
        before = [(worker.pid, worker.child_pids) for worker in matrix._running]
        matrix.run(cell)
        after = [(worker.pid, worker.child_pids) for worker in matrix._running]
        restarted = not before or cell.scenario.limits or cell.scenario.stops or str(cell) in matrix.failed
        if cell.scenario is DYING:
            before, after = [(pid, []) for pid, _ in before], [(pid, []) for pid, _ in after]
        assert restarted or after == before, f"{cell}: {before} became {after}"
    orm.enqueue_many([{"n": 1000 + n, "seconds": 0.01} for n in range(5)])  # not the numbers of cells
    wait_until_done(seconds=60)
    assert set(states()) == {"succeeded"}, "the next handlers find a connection that works"


@pytest.mark.long
def test_f06_all_connections_ended_for_twenty_seconds(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """Every 2 s under load: the same processes, nothing is lost, and work flows again within 5 s each time."""
    workers = [make_worker(threads=2, times=PATIENT).start() for _ in range(2)]
    for worker in workers:
        worker.wait_ready(seconds=180)
    before, flows, acknowledged = [worker.group() for worker in workers], [], []
    for turn in range(TURNS):
        mine = range(100 * turn, 100 * turn + 40)
        row.enqueue_many([{"n": n, "seconds": 0.05} for n in mine[:20]])
        work.enqueue_many([{"n": n, "seconds": 0.05} for n in mine[20:]])
        acknowledged += mine
        wait_for(lambda turn=turn: witness.lines("start", n=100 * turn), seconds=60, what="load")
        end_connections()
        cut = time.monotonic()
        first = wait_for(lambda since=cut: [line for line in witness.lines("end") if line["at"] > since], seconds=60)
        flows.append(first[0]["at"] - cut)
        pass_time(max(0.0, cut + EVERY - time.monotonic()))
    wait_until_done(seconds=120)

    told = ", ".join(f"{flow:.2f}" for flow in flows)
    print(f"\nF6: work flowed again {told} s after all connections were ended; attempts {dict(outcomes())}")
    assert [worker.group() for worker in workers] == before, "a process ended"
    assert states() == {"succeeded": len(acknowledged)}, "an acknowledged job is gone"
    assert rows() == Counter(dict.fromkeys(acknowledged, 1))
    assert not Job.objects.filter(lost_count__gt=0).exists()
    assert [item.invariant.name for item in verify(using="default").violated] == []
    assert max(flows) <= 5


@pytest.mark.long
@pytest.mark.timeout(900)
def test_f06_terminated_around_the_statements_that_matter(make_matrix: Callable[..., Matrix], vendor: str) -> None:
    """Claim, renewal, intent, confirmation, finish and rescue: the same processes, and each job ends as it should."""
    chosen = [cell for cell in cells("terminate", vendor) if (cell.point, cell.scenario) in FEW]
    matrix = make_matrix()
    run_in_one_process(matrix, chosen)
    matrix.report(least=len(FEW))
