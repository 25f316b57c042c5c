"""F4 and F5: a worker that stood still past its lease and wakes: no late end of it is accepted, and each is counted."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from django_jobs import store, telemetry
from django_jobs.domain.states import DeadReason
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Attempt, Job, Worker
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import frozen_call, work
from tests.acceptance.test_frozen import assert_serves
from tests.acceptance.workers import Witness, wait_for
from tests.crash.cells import Cell
from tests.crash.harness import Matrix
from tests.crash.table import LATE, PAYING
from tests.crowd import together
from tests.factories import JobFactory
from tests.scenes import BUDGET, failure, held

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
POINTS = ("handler.before", "effect.after_intent", "effect.after_call", "finish.before")
STALE = 10_000


def freeze_at_each_point(make_matrix: Callable[..., Matrix], *, rounds: int) -> None:
    """Freeze one of two workers past its lease at each point; the other one takes over, and the late end is refused."""
    matrix = make_matrix(workers=2, short_lease=True)
    for _ in range(rounds):
        for point in POINTS:
            matrix.run(Cell(point=point, kind="freeze", scenario=PAYING, code=LATE))
    matrix.report(least=rounds * len(POINTS))
    jobs = rounds * len(POINTS)
    refused = Attempt.objects.filter(refused_count__gt=0, outcome="lost").count()
    assert refused >= jobs, "each late end is counted; a cell that was tried again has more than one"
    assert Attempt.objects.filter(outcome="succeeded", number=2).count() >= jobs
    assert not Attempt.objects.filter(refused_count__gt=0, outcome="succeeded").exists(), "a late end was accepted"
    print(f"\nF4: {jobs} stops, {refused} late ends refused and counted, 0 accepted")


@pytest.mark.long
@pytest.mark.postgres
def test_f04_frozen_at_four_points(make_matrix: Callable[..., Matrix]) -> None:
    """Four stops: one accepted end each, by the new owner; one effect, one row; the late end is refused and counted."""
    freeze_at_each_point(make_matrix, rounds=1)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(1800)
def test_f04_frozen_twenty_times(make_matrix: Callable[..., Matrix]) -> None:
    """The same with 20 stops."""
    freeze_at_each_point(make_matrix, rounds=5)


@contextmanager
def refusals() -> Iterator[Callable[[], int]]:
    """Count in this block how many late writes telemetry was told of."""
    before = telemetry.counts["lease.refused"]
    yield lambda: telemetry.counts["lease.refused"] - before


@pytest.mark.long
def test_f04_ten_thousand_stale_ends_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """10,000 ends of every kind under the attempt id of a former owner, from four threads: none accepted, each told."""
    caplog.set_level(logging.ERROR, logger="django_jobs.lease")  # 10,000 lines that are all the same
    job = JobFactory(running=True)
    stale = held(job, attempt_id=uuid.uuid4())
    before = Job.objects.filter(pk=job.pk).values().get()
    kinds: list[Callable[[], object]] = [
        lambda: store.succeed(stale, result=None, budget=BUDGET),
        lambda: store.fail(stale, failure=failure(unknown=1), delay=timedelta(0), budget=BUDGET),
        lambda: store.dead_letter(stale, failure=failure(unknown=1), reason=DeadReason.UNKNOWN_BUDGET, budget=BUDGET),
    ]

    def stale_ends(place: int) -> int:
        refused = 0
        for number in range(STALE // 4):
            try:
                kinds[(number + place) % len(kinds)]()
            except LeaseLostError:
                refused += 1
        return refused

    began = time.monotonic()
    with refusals() as told:
        refused = together(*[lambda place=place: stale_ends(place) for place in range(4)])

    assert refused == [STALE // 4] * 4
    assert told() == STALE
    assert Job.objects.filter(pk=job.pk).values().get() == before
    print(f"\nF4: {STALE} stale ends, {told()} refused, 0 accepted, in {time.monotonic() - began:.1f} s")


@pytest.mark.long
def test_f05_woken_worker_whose_row_was_pruned_registers_again(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Its row is gone and a third worker came meanwhile: it is refused, says again that it lives, and takes jobs."""
    job_id = frozen_call.enqueue(n=1, first=1.0).id
    frozen = make_worker(threads=1, arguments=("--name", "frozen")).start()
    wait_for(lambda: witness.lines("start"), what="the first start")
    before = frozen.group()
    frozen.freeze()
    make_worker(threads=1, arguments=("--name", "second")).start()
    wait_for(lambda: len(witness.lines("start")) == 2, seconds=60, what="the second attempt")
    wait_until_done(seconds=30)
    Worker.objects.filter(name="frozen").delete()
    third = make_worker(threads=1, arguments=("--name", "third")).start().wait_ready(seconds=180)

    frozen.thaw()

    wait_for(lambda: Attempt.objects.filter(job_id=job_id, number=1, refused_count=1).exists(), what="the refusal")
    wait_for(Worker.objects.filter(name="frozen", pid=frozen.pid).exists, what="its row")
    assert_serves(frozen, witness)
    assert rows()[1] == 1
    assert frozen.group() == before
    assert third.is_running()
    assert "Traceback" not in frozen.text, frozen.text
    assert list(Attempt.objects.filter(job_id=job_id).order_by("number").values_list("outcome", flat=True)) == [
        "lost",
        "succeeded",
    ]
    work.enqueue(n=2)
    wait_until_done(seconds=30)
