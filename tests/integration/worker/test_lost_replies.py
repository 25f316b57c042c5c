"""A lost COMMIT: what happened is read back, never assumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_jobs import JobContext, RetryPolicy, clock
from django_jobs.models import Attempt, Job, JobStep
from django_jobs.testing.proxy import Fault, PostgresProxy
from django_jobs.worker import claiming as claiming_module
from django_jobs.worker.claiming import DOUBT
from django_jobs.worker.connection import LOST
from tests.databases import Server, point_default_at
from tests.integration.worker.conftest import Declare, claimer, run, run_one, take, the_job, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Table = Callable[[], list[int]]
SOON = RetryPolicy(base=timedelta(microseconds=1), cap=timedelta(microseconds=1))
SUCCEED, FAIL, CLAIM = "SET state = 'succeeded'", "-- purpose: record a failed attempt", "-- purpose: lease jobs"


@pytest.fixture
def proxy(server: Server, table: Table) -> Iterator[PostgresProxy]:
    """The test database behind a proxy that loses what it is told to."""
    with PostgresProxy(server.url) as started:
        point_default_at(started.url)
        yield started
        connections.close_all()
        server.activate()


def in_transaction(context: JobContext) -> None:
    """Write a row together with the success."""
    with context.complete():
        write(1)


def plain() -> None:
    """Write a row; the success commits with it."""
    write(1)


def stepping(context: JobContext) -> None:
    """Write a row in a step."""
    context.step("one", lambda: write(1))


HANDLERS: list[tuple[Callable[..., None], dict[str, Any], str]] = [
    (plain, {}, "COMMIT"),
    (in_transaction, {"takes_context": True}, "COMMIT"),
]


def test_commit_is_what_goes_over_the_wire(declare: Declare, proxy: PostgresProxy) -> None:
    """An atomic handler sends one BEGIN and one COMMIT, its guard last; the faults below hit that COMMIT."""
    declare(plain).enqueue()
    attempt = take()
    proxy.statements.clear()

    run(attempt)

    told = [text for text in proxy.statements if text in {"BEGIN", "COMMIT"} or "django_jobs_job" in text]
    assert [text if len(text) < 10 else "succeed" for text in told] == ["BEGIN", "succeed", "COMMIT"]
    assert SUCCEED in told[1]


@pytest.mark.parametrize(("handler", "options", "statement"), HANDLERS, ids=["atomic", "complete"])
def test_lost_reply_to_a_commit_that_happened_is_a_success(
    declare: Declare, proxy: PostgresProxy, table: Table, handler: Any, options: Any, statement: str
) -> None:
    """The reply is lost, the rows are there: the attempt stays succeeded and nothing runs twice."""
    declare(handler, **options).enqueue()
    attempt = take()
    rule = proxy.lose(statement, fault="drop_reply")

    run(attempt)

    assert rule.fired.is_set()
    assert table() == [1]
    assert the_job().state == "succeeded"
    row = Attempt.objects.get()
    assert (row.outcome, row.refused_count) == ("succeeded", 0)


@pytest.mark.parametrize(("handler", "options", "statement"), HANDLERS, ids=["atomic", "complete"])
def test_commit_that_never_arrived_is_transient_and_runs_again(
    declare: Declare, proxy: PostgresProxy, table: Table, handler: Any, options: Any, statement: str
) -> None:
    """The request is lost: CommitLostError, class transient; the next attempt writes the row once."""
    declare(handler, retry=SOON, **options).enqueue()
    attempt = take()
    rule = proxy.lose(statement, fault="drop_request")

    run(attempt)

    assert rule.fired.is_set()
    assert table() == []
    first = Attempt.objects.get()
    assert (first.outcome, first.error_class) == ("failed", "transient")
    assert first.error_type.endswith("CommitLostError")
    assert run_one().outcome == "succeeded"
    assert table() == [1]


@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_step_runs_once_whatever_is_lost(declare: Declare, proxy: PostgresProxy, table: Table, fault: Fault) -> None:
    """A step whose COMMIT was lost has its row and its record once, in the same attempt or the next."""
    declare(stepping, takes_context=True, retry=SOON).enqueue()
    attempt = take()
    rule = proxy.lose("COMMIT", fault=fault)

    run(attempt)
    if fault == "drop_request":
        assert Attempt.objects.get().error_type.endswith("CommitLostError")
        run_one()

    assert rule.fired.is_set()
    assert table() == [1]
    assert JobStep.objects.count() == 1
    assert the_job().state == "succeeded"


@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_success_of_one_statement_is_repeated_or_recognised(
    declare: Declare, proxy: PostgresProxy, table: Table, fault: Fault
) -> None:
    """The success of a handler that committed by itself is written once, whichever half of it was lost."""
    declare(plain, atomic=False).enqueue()
    attempt = take()
    rule = proxy.lose(SUCCEED, fault=fault)

    run(attempt)

    assert rule.fired.is_set()
    assert table() == [1]
    assert the_job().state == "succeeded"
    assert Attempt.objects.get().refused_count == 0


@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_failure_is_charged_once(declare: Declare, proxy: PostgresProxy, fault: Fault) -> None:
    """A failure whose record was lost on the way is charged once."""

    def failing() -> None:
        raise ValueError("no")

    declare(failing).enqueue()
    attempt = take()
    rule = proxy.lose(FAIL, fault=fault)

    run(attempt)

    assert rule.fired.is_set()
    job = the_job()
    assert (job.state in {"failed", "queued"}, job.unknown_count) == (True, 1)
    assert Attempt.objects.get().outcome == "failed"


def test_claim_without_a_reply_is_given_back(declare: Declare, proxy: PostgresProxy) -> None:
    """A claim that was written although its reply was lost gives the job back; it is charged nothing and runs."""
    declare(plain).enqueue()
    claiming = claimer()
    rule = proxy.lose(CLAIM, fault="drop_reply")
    with pytest.raises(LOST):
        claiming.take(1, 0)
    assert rule.fired.is_set()
    connections["default"].close()
    assert the_job().state == "running"

    found = claiming.take(1, 0)
    run(*found)

    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["released", "succeeded"]
    job = the_job()
    assert (job.state, job.free_count, job.lost_count) == ("succeeded", 1, 0)


def test_claim_that_commits_late_is_given_back_too(declare: Declare, server: Server, table: Table) -> None:
    """A claim that the server commits after the worker first looked is found by a later look."""
    declare(plain).enqueue()
    claiming = claimer()
    late = take()  # what the server is about to commit
    Job.objects.update(state="queued", attempt_id=None, lease_owner=None, lease_child=None, lease_expires_at=None)
    Attempt.objects.all().delete()
    claiming._doubtful[late.attempt_id] = float("inf")
    claiming.settle_doubtful()
    assert late.attempt_id in claiming._doubtful, "not found yet is no answer"
    Job.objects.update(
        state="running",
        attempt_id=late.attempt_id,
        lease_owner=late.attempt_id,
        lease_child=1,
        lease_expires_at=late.claimed.lease_expires_at,
    )
    Attempt.objects.create(
        id=late.attempt_id,
        job_id=late.job_id,
        number=1,
        generation=1,
        worker_id=late.attempt_id,
        worker_child=1,
        started_at=late.claimed.claimed_at,
        lease_seconds=70,
    )
    claiming._looked_at_doubtful = float("-inf")

    claiming.settle_doubtful()

    assert the_job().state == "queued"
    assert Attempt.objects.get().outcome == "released"
    assert claiming._doubtful == {}


def test_doubt_about_a_claim_lasts_until_the_server_has_answered(
    declare: Declare, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stood still commits when it wakes: the time to look again counts from its first answer on."""
    declare(plain)
    claiming, now = claimer(), 1000.0
    monkeypatch.setattr(clock, "boot_seconds", lambda: now)
    with monkeypatch.context() as away:
        away.setattr(claiming_module, "claim", _unanswered)
        with pytest.raises(OperationalError):
            claiming.take(1, 0)
    kept = []

    for later in (4000.0, DOUBT - 1.0, 2.0):
        now += later
        claiming.settle_doubtful()
        kept.append(len(claiming._doubtful))

    assert kept == [1, 1, 0]


def _unanswered(*_: Any, **__: Any) -> None:
    raise OperationalError("no answer")
