"""Public failure reports against job systems, as tests against this one; the number is the report's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, outcomes, states
from tests.acceptance.handlers import row, work
from tests.acceptance.workers import Witness, wait_for
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]


@pytest.mark.postgres
def test_many_workers_run_each_job_once_r01(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """4 workers × 2 threads and 1,000 jobs: one attempt and one row each."""
    row.enqueue_many([{"n": n} for n in range(500)])
    work.enqueue_many([{"n": n} for n in range(500, 1000)])

    workers = [make_worker(threads=2, arguments=("--drain",)).start() for _ in range(4)]

    assert [worker.wait(seconds=90) for worker in workers] == [0] * 4
    assert rows() == Counter(dict.fromkeys(range(1000), 1))
    assert outcomes() == {"succeeded": 1000}
    assert len(Counter(Attempt.objects.values_list("worker_name", flat=True))) == 4


@pytest.mark.sqlite
def test_processes_share_a_sqlite_file_without_doubling_r15(
    make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """4 processes on one file and 500 jobs: 500 attempts, no duplicate, no crash."""
    row.enqueue_many([{"n": n} for n in range(500)])

    workers = [make_worker(threads=1, arguments=("--drain",)).start() for _ in range(4)]

    assert [worker.wait(seconds=90) for worker in workers] == [0] * 4
    assert outcomes() == {"succeeded": 500}
    assert rows() == Counter(dict.fromkeys(range(500), 1))
    assert all("Traceback" not in worker.text for worker in workers)


def test_unknown_type_is_kept_and_left_alone_r55(make_worker: MakeWorker, rows: Rows) -> None:
    """A job whose type nobody knows is set aside, also when it has to run alone, and never started; others go on."""
    unknown = [JobFactory(job_type="gone.away").pk, JobFactory(job_type="gone.away", suspect=True).pk]
    work.enqueue_many([{"n": n, "seconds": 0.05} for n in range(20)])

    worker = make_worker(threads=2, arguments=("--drain",)).start()

    assert worker.wait(seconds=40) == 0, "what nobody here can run does not keep a draining worker"
    assert rows() == Counter(dict.fromkeys(range(20), 1))
    assert states() == {"succeeded": 20, "scheduled": 2}
    assert set(Job.objects.filter(pk__in=unknown).values_list("lane", flat=True)) == {"!gone.away 1"}
    assert not Attempt.objects.filter(job_id__in=unknown).exists()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("source", "told"),
    [("import no_such_module_at_all\n", "no_such_module_at_all"), ("def broken(:\n", "SyntaxError")],
    ids=["import-error", "syntax-error"],
)
def test_worker_with_a_broken_handler_module_refuses_to_start_r55(
    make_worker: MakeWorker, tmp_path: Path, source: str, told: str
) -> None:
    """Exit 1 with the module's name: a worker that does not know its handlers would leave their jobs alone in silence."""
    (tmp_path / "broken_handlers.py").write_text(source)
    environment = {"JOBS_IMPORTS": "broken_handlers", "PYTHONPATH": str(tmp_path)}

    worker = make_worker(env=environment).start()

    assert worker.wait(seconds=30) == 1
    assert told in worker.text
    assert "broken_handlers" in worker.text


@pytest.mark.slow
@pytest.mark.sqlite
def test_worker_whose_children_cannot_start_gives_up(make_worker: MakeWorker, tmp_path: Path) -> None:
    """Children that cannot load their code, although their supervisor could, end the worker with exit 1 in the end."""
    (tmp_path / "sometimes.py").write_text(
        "import sys\nif 'manage.py' not in sys.argv[0]:\n    raise ImportError('not in a child')\n"
    )
    worker = make_worker(env={"JOBS_IMPORTS": "sometimes", "PYTHONPATH": str(tmp_path)}).start()

    assert worker.wait(seconds=60) == 1
    assert "not in a child" in worker.text
    assert "giving up" in worker.text


@pytest.mark.sqlite
def test_drain_waits_for_what_is_due_later(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """--drain ends when nothing waits any more: also a job that is due in two seconds, and a retry due in moments."""
    work.using(run_after=timedelta(seconds=2)).enqueue(n=1)
    worker = make_worker(threads=1, arguments=("--drain",)).start()

    assert worker.wait(seconds=30) == 0
    assert rows() == {1: 1}
    assert Job.objects.get().state == "succeeded"
    wait_for(lambda: witness.lines("end"), what="the end")
