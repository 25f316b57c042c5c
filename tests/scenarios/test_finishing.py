"""F13: two believe that they hold the same attempt, and all finish at one moment."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from django_jobs import store
from django_jobs.domain.states import DeadReason
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Attempt, Job
from django_jobs.store.completion import Given
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.execute import execute
from tests.crowd import together
from tests.databases import Server
from tests.factories import JobFactory
from tests.integration.worker.conftest import JOB_TYPE, Declare, declare, table, take, write
from tests.scenes import BUDGET, failure, held

__all__ = ["declare", "table"]

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 50
ENDS: tuple[Callable[[Given], object], ...] = (
    lambda mine: store.succeed(mine, result=None, budget=BUDGET),
    lambda mine: store.fail(mine, failure=failure(unknown=1), delay=timedelta(hours=1), budget=BUDGET),
    lambda mine: store.dead_letter(mine, failure=failure(unknown=1), reason=DeadReason.PERMANENT, budget=BUDGET),
    lambda mine: store.release(mine, message="given back"),
)


def refusals(results: list[object]) -> int:
    """Count the ends that were refused; a release that changed nothing says so by its result."""
    return sum(isinstance(result, LeaseLostError) or result is False for result in results)


@pytest.mark.parametrize("ends", [ENDS[:1], ENDS], ids=["fifty-successes", "all-kinds-of-ends"])
def test_f13_one_of_fifty_finishes_is_accepted(server: Server, ends: tuple[Callable[[Given], object], ...]) -> None:
    """50 threads hold a copy of one attempt's token and end it at a barrier: 1 accepted, 49 refused, one row changed once."""
    job = JobFactory(running=True)
    mine = held(job)

    results = together(*[lambda end=end: end(mine) for end in itertools.islice(itertools.cycle(ends), MANY)])

    assert refusals(results) == MANY - 1, results
    assert not [
        result for result in results if isinstance(result, Exception) and not isinstance(result, LeaseLostError)
    ]
    before = job.revision
    job.refresh_from_db()
    assert (job.revision, job.fence, job.attempt_id) == (before + 1, 1, None)
    attempt = Attempt.objects.get()
    assert (job.state, attempt.outcome) in {
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("dead_lettered", "failed"),
        ("queued", "released"),
    }


@pytest.mark.postgres  # on SQLite such a handler holds the write lock from its start: there is never a second one
def test_f13_fifty_handlers_of_one_attempt_leave_one_row(
    server: Server,
    declare: Declare,
    table: Callable[[], list[int]],
) -> None:
    """The same with whole handlers: each writes its business row, and the row of the accepted one alone is there."""
    handlers = threading.Barrier(MANY, timeout=60)

    def writes() -> None:
        handlers.wait()
        write(1)

    declare(writes).enqueue()
    first = take()
    copies = [RunningAttempt(first.claimed, first.definition, asked_at=first.asked_at) for _ in range(MANY)]

    together(*[lambda copy=copy: execute(copy) for copy in copies])

    assert table() == [1]
    assert (Attempt.objects.get().outcome, Job.objects.get(job_type=JOB_TYPE).state) == ("succeeded", "succeeded")
