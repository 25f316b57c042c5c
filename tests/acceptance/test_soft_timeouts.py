"""Real workers whose handlers have used up their budget: they end in good order, and the process goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job, SideEffect
from tests.acceptance.conftest import MakeWorker, outcomes, wait_until_done
from tests.acceptance.handlers import work
from tests.acceptance.soft_handlers import loop, passes, statement, with_effect
from tests.acceptance.workers import Witness

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Rows = Callable[[], Counter[int]]
LOADED = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.acceptance.soft_handlers"}


def test_handlers_that_are_told_end_in_good_order(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A loop without end writes its row and succeeds, an effect stays whole, and a neighbour notices nothing."""
    loop.enqueue(n=1)
    with_effect.enqueue(n=2)
    work.enqueue(n=3, seconds=4.0)
    make_worker(env=LOADED).start()

    wait_until_done(seconds=40)

    assert outcomes() == {"succeeded": 3}
    assert rows() == {1: 1, 2: 1, 3: 1}
    assert len(witness.lines("called", n=2)) == len(witness.lines("told", n=2)) == 1
    assert SideEffect.objects.get().state == "succeeded"
    assert len({line["pid"] for line in witness.lines()}) == 1, "no process was replaced"


def test_handler_that_lets_it_pass_is_run_again_by_the_same_process(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Both attempts fail with the error, nothing that they wrote is left, and the job waits for a human."""
    job_id = passes.enqueue(n=1).id
    make_worker(threads=1, env=LOADED).start()

    wait_until_done(seconds=40)

    job = Job.objects.get(pk=job_id)
    assert (job.state, job.dead_reason, job.lost_count) == ("dead_lettered", "unknown_budget", 0)
    attempts = Attempt.objects.filter(job_id=job_id)
    assert {attempt.error_type for attempt in attempts} == {"django_jobs.exceptions.SoftTimeoutError"}
    assert [attempt.over_budget for attempt in attempts] == [True, True]
    assert rows() == {}
    assert len({line["pid"] for line in witness.lines("start")}) == 1, "no process was replaced"


@pytest.mark.postgres
def test_statement_without_end_is_cancelled(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """A handler that waits for PostgreSQL is told at once, and writes on in the same session."""
    statement.enqueue(n=1)
    make_worker(threads=1, env=LOADED).start()

    wait_until_done(seconds=40)

    (start,), (end,) = witness.lines("start"), witness.lines("end")
    assert outcomes() == {"succeeded": 1}
    assert end["at"] - start["at"] < 4, "two seconds of budget, and some to be told"
    assert start["session"] == end["session"]
    assert rows() == {1: 1}
