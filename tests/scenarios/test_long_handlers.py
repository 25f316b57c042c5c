"""F14 and F15: handlers that take longer than their lease; those with and without progress are in tests/acceptance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.workers import Witness, wait_for
from tests.scenarios.handlers import gil, stuck_value

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

Rows = Callable[[], Counter[int]]
IMPORTS = {"JOBS_IMPORTS": "tests.acceptance.handlers,tests.scenarios.handlers"}


def test_f14_value_that_does_not_grow_keeps_no_lease(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """Progress that stands still is ended like silence, although it is told five times a second; the next attempt succeeds."""
    job_id = stuck_value.enqueue(n=1, seconds=20.0).id
    workers = [make_worker(threads=2, env=IMPORTS).start() for _ in range(2)]

    wait_until_done(seconds=60)

    attempts = list(Attempt.objects.filter(job_id=job_id).order_by("number"))
    assert [attempt.outcome for attempt in attempts] == ["failed", "succeeded"]
    assert attempts[0].error_type.endswith("HardTimeoutError")
    assert attempts[0].progress == 7
    assert (attempts[0].finished_at - attempts[0].started_at).total_seconds() < 10
    assert Job.objects.get(pk=job_id).lost_count == 0, "its process is well"
    assert rows() == {1: 1}
    assert any("ran past its lease" in worker.text for worker in workers)


@pytest.mark.postgres
def test_f15_c_code_that_holds_the_interpreter_loses_its_lease_and_nothing_else(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """No thread of the child can act for three leases: the other worker takes the job, and the late finish is refused."""
    job_id = gil.enqueue(n=1, seconds=12.0).id
    first = make_worker(threads=1, env=IMPORTS, arguments=("--name", "first")).start()
    wait_for(lambda: witness.lines("holding"), seconds=60, what="the C code")
    make_worker(threads=1, env=IMPORTS, arguments=("--name", "second")).start()

    late = wait_for(
        lambda: Attempt.objects.filter(job_id=job_id, number=1, refused_count__gt=0).first(),
        seconds=60,
        what=f"the refusal of the late finish: {first.text}",
    )
    wait_until_done(seconds=60)

    (back,) = witness.lines("released")
    (ended,) = witness.lines("end", number=2)
    assert ended["at"] < back["at"], "the second attempt did not wait for the first one"
    attempts = list(Attempt.objects.filter(job_id=job_id).order_by("number"))
    assert [(attempt.outcome, attempt.worker_name) for attempt in attempts] == [
        ("lost", "first"),
        ("succeeded", "second"),
    ]
    assert (late.loss_cause, Job.objects.get(pk=job_id).lost_count) == ("expired", 0), "nobody died"
    assert rows() == {1: 1}
    assert len(witness.lines("call", n=1)) == 1, "the second attempt took the receipt of the first one's effect"
    assert "no longer owns the job" in first.text or "was taken back" in first.text
