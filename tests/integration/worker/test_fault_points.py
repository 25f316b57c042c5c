"""What was found by breaking a worker at its fault points, once more in one process."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs import JobContext, faults
from django_jobs.exceptions import JobCancelled
from django_jobs.faults.kinds import KINDS
from django_jobs.models import Attempt
from django_jobs.store.brief import IDLE, briefly
from django_jobs.store.limits import locked
from django_jobs.worker import hygiene
from django_jobs.worker.connection import bounded, clean
from django_jobs.worker.rescue import PATIENCE
from tests.integration.worker.conftest import AGAIN, Declare, run_one, the_job, write

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]


def idle_limit(using: str = "default") -> str:
    """Return for how long the session may idle in the transaction that is open."""
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        return str(cursor.fetchone()[0])


def cancelling() -> None:
    """End the job as cancelled."""
    raise JobCancelled("nobody wants it")


def failing() -> None:
    """Fail."""
    raise ValueError("no")


@pytest.mark.parametrize(
    ("handler", "point", "outcome"),
    [
        (lambda: None, "finish.after_commit", "succeeded"),
        (failing, "fail.after_commit", "failed"),
        (cancelling, "cancel.after_commit", "cancelled"),
    ],
    ids=["success", "failure", "cancel"],
)
def test_error_of_our_own_after_a_recorded_end_is_no_late_worker(
    declare: Declare, handler: Callable[[], None], point: str, outcome: str
) -> None:
    """The end stands, and the attempt is not marked as one that came back too late: it ended itself."""
    declare(handler, atomic=False).enqueue()

    with faults.armed(point, KINDS["raise"]) as fired:
        attempt = run_one()

    assert fired()
    assert (attempt.outcome, attempt.refused_count) == (outcome, 0)


@pytest.mark.postgres
def test_commit_that_failed_before_it_was_sent_is_not_taken_for_done(declare: Declare, table: Table) -> None:
    """The transaction is still open then and would show its own success; the attempt fails, and no row is there."""

    def refuse_commit(using: str) -> None:
        def broken() -> None:
            del connections[using]._commit  # type: ignore[attr-defined]
            raise RuntimeError("the driver itself failed")

        connections[using]._commit = broken  # type: ignore[attr-defined]

    def handler(context: JobContext) -> None:
        with context.complete():
            pass

    declare(handler, takes_context=True).enqueue()
    with faults.armed("finish.after_update", refuse_commit) as fired:
        attempt = run_one()

    assert fired()
    assert attempt.outcome == "failed"
    assert the_job().state in AGAIN


@pytest.mark.postgres
def test_session_may_not_idle_with_a_cancelled_job_locked(declare: Declare) -> None:
    """A worker that stands still while it ends a job as cancelled loses its lock after some seconds."""
    found: list[str] = []
    declare(cancelling, atomic=False).enqueue()

    with faults.armed("cancel.after_update", lambda using: found.append(idle_limit(using))):
        run_one()

    assert found == ["5s"]


@pytest.mark.postgres
@pytest.mark.parametrize(
    "block",
    [
        lambda: briefly("default"),
        lambda: bounded("default", PATIENCE),
        lambda: locked(["narrow"], using="default"),
    ],
    ids=["our own", "the reaper's", "a limited claim's"],
)
def test_session_may_not_idle_in_a_transaction_that_locks(block: Callable[[], Any]) -> None:
    """Each kind of transaction of the worker's own says so to the server in its first statement, for itself alone."""
    before = idle_limit()
    with block():
        assert idle_limit() == f"{IDLE // 1000}s"

    assert idle_limit() == before


@pytest.mark.postgres
def test_nothing_is_limited_inside_the_transaction_of_a_project(transactional_db: None) -> None:
    """The project's own transaction may idle as long as the project says."""
    from django.db import transaction

    with transaction.atomic():
        before = idle_limit()
        with briefly("default"):
            assert idle_limit() == before


def test_record_of_a_plain_job_names_its_points_in_their_order(declare: Declare, vendor: str) -> None:
    """A dry run tells at which points a job can be hit."""
    declare(lambda: None, atomic=False).enqueue()
    with faults.recorded() as seen:
        run_one()

    inside = {"sqlite": ["finish.after_update"], "postgresql": []}[vendor]
    own = ["handler.before", "handler.after", "finish.before", *inside, "finish.after_commit"]
    assert seen[-len(own) :] == own
    assert Attempt.objects.filter(job_id=uuid.UUID(str(the_job().pk))).count() == 1


@pytest.mark.postgres
def test_fault_that_met_no_statement_ends_with_its_job(table: Table) -> None:
    """What is armed at a job's last moment harms no later job of the thread: its COMMIT is done, on the same connection."""
    connection = connections["default"]
    hygiene.watch_all("default")
    KINDS["lose_reply"]("default")
    raw = connection.connection

    clean("default")
    with transaction.atomic():
        write(1)

    assert table() == [1]
    assert connection.connection is raw
    assert "commit" not in vars(raw)
