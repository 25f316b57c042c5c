"""F6: sessions that the server ends before or after each statement: no process ends, and handlers' connections recover."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.acceptance.conftest import states, wait_until_done
from tests.acceptance.handlers import orm
from tests.crash.cells import Cell, cells
from tests.crash.harness import Matrix
from tests.crash.table import DYING, PAYING, PLAIN, PROGRESSING, ROW

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

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
    orm.enqueue_many([{"n": n, "seconds": 0.01} for n in range(1, 6)])
    wait_until_done(seconds=60)
    assert set(states()) == {"succeeded"}, "the next handlers find a connection that works"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_f06_terminated_around_the_statements_that_matter(make_matrix: Callable[..., Matrix], vendor: str) -> None:
    """Claim, renewal, intent, confirmation, finish and rescue: the same processes, and each job ends as it should."""
    chosen = [cell for cell in cells("terminate", vendor) if (cell.point, cell.scenario) in FEW]
    matrix = make_matrix()
    run_in_one_process(matrix, chosen)
    matrix.report(least=len(FEW))
