"""A worker frozen past its lease: one finish is accepted, the late one is refused and counted, and it serves on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import dead_on_second, frozen_call, work
from tests.acceptance.workers import Witness, WorkerProcess, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


def freeze_and_replace(make_worker: MakeWorker, witness: Witness) -> WorkerProcess:
    """Freeze a worker inside a handler, let another one take the job over, and return the frozen one."""
    frozen = make_worker(threads=1, arguments=("--name", "frozen")).start()
    wait_for(lambda: witness.lines("start"), what="the first start")
    frozen.freeze()
    make_worker(threads=1, arguments=("--name", "other")).start()
    wait_for(lambda: len(witness.lines("start")) == 2, what="the second attempt")
    return frozen


def test_f04_woken_worker_is_refused_counted_and_serves_on(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """The other worker's finish stands; the late one changes nothing, is counted on its attempt, and told."""
    job_id = frozen_call.enqueue(n=1, first=1.0).id
    frozen = freeze_and_replace(make_worker, witness)
    wait_until_done(seconds=30)

    frozen.thaw()

    first = wait_for(lambda: Attempt.objects.filter(job_id=job_id, number=1, refused_count__gt=0).first())
    assert (first.outcome, first.refused_count) == ("lost", 1)
    assert "no longer owns the job" in frozen.text or "was taken back" in frozen.text
    assert rows() == {1: 1}
    assert list(Attempt.objects.filter(outcome="succeeded").values_list("number", flat=True)) == [2]
    assert_serves(frozen, witness)


def test_f04_success_of_a_woken_worker_does_not_hide_a_dead_letter(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Also when the new owner dead-lettered the job, the late success is refused and the dead letter stays."""
    job_id = dead_on_second.enqueue(n=1, first=1.0).id
    frozen = freeze_and_replace(make_worker, witness)
    wait_for(lambda: Job.objects.get(pk=job_id).state == "dead_lettered", what="the dead letter")

    frozen.thaw()

    wait_for(lambda: Attempt.objects.filter(job_id=job_id, number=1, refused_count=1).exists(), what="the refusal")
    assert Job.objects.get(pk=job_id).state == "dead_lettered"
    assert rows() == {}
    assert_serves(frozen, witness)


def assert_serves(woken: WorkerProcess, witness: Witness) -> None:
    """A worker that was woken takes jobs again: the only other one is frozen in its place by ending it."""
    assert woken.is_running()
    names = Attempt.objects.filter(worker_name="frozen")
    before = names.count()
    for n in range(100, 110):
        work.enqueue(n=n, seconds=0.2)
    wait_for(lambda: names.count() > before, seconds=30, what=f"work of the woken worker: {woken.text}")
