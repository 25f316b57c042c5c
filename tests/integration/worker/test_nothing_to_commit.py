"""A plain handler that asked nothing of the database: its success is one statement, and as certain as any other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections, transaction

from django_jobs.models import Attempt, Job, JobPayload
from django_jobs.testing.proxy import PostgresProxy
from tests.databases import Server, point_default_at
from tests.integration.worker.conftest import Declare, run, run_one, take, the_job

pytestmark = pytest.mark.django_db(transaction=True)

SUCCEED = "SET state = 'succeeded'"


def told_nobody() -> dict[str, int]:
    """Ask nothing of the database."""
    return {"sum": 3}


@pytest.fixture
def proxy(server: Server) -> Iterator[PostgresProxy]:
    """The test database behind a proxy that shows and loses statements."""
    with PostgresProxy(server.url) as started:
        point_default_at(started.url)
        yield started
        connections.close_all()
        server.activate()


@pytest.mark.postgres
def test_success_is_one_statement_without_a_transaction(declare: Declare, proxy: PostgresProxy) -> None:
    """No BEGIN, no COMMIT: nothing is there that they could hold together."""
    declare(told_nobody).enqueue()
    attempt = take()
    proxy.statements.clear()

    run(attempt)

    # A server with another time zone is told ours when a connection opens.
    (only,) = (text for text in proxy.statements if "set_config('TimeZone'" not in text)
    assert SUCCEED in only
    assert the_job().state == "succeeded"


@pytest.mark.postgres
def test_handler_that_only_reads_keeps_its_transaction(declare: Declare, proxy: PostgresProxy) -> None:
    """What a handler read it may have locked: its transaction ends with the success, not before."""

    def handler() -> None:
        assert Job.objects.count() == 1

    declare(handler).enqueue()
    attempt = take()
    proxy.statements.clear()

    run(attempt)

    assert [text for text in proxy.statements if text in {"BEGIN", "COMMIT"}] == ["BEGIN", "COMMIT"]
    assert the_job().state == "succeeded"


@pytest.mark.postgres
@pytest.mark.parametrize("fault", ["drop_reply", "drop_request"])
def test_lost_statement_is_settled(declare: Declare, proxy: PostgresProxy, fault: str) -> None:
    """Whether the success was written before the line broke or not, it is there once, and nobody is called late."""
    declare(told_nobody).enqueue()
    attempt = take()
    rule = proxy.lose(SUCCEED, fault=fault)  # type: ignore[arg-type]

    run(attempt)

    assert rule.fired.is_set()
    assert the_job().state == "succeeded"
    row = Attempt.objects.get()
    assert (row.outcome, row.refused_count) == ("succeeded", 0)


def test_result_is_kept(declare: Declare) -> None:
    """What the handler returned is stored with the success."""
    declare(told_nobody).enqueue()

    run_one()

    assert JobPayload.objects.get().result == '{"sum":3}'


def test_what_runs_on_commit_runs_after_the_success(declare: Declare) -> None:
    """A hook that a handler leaves without a statement of its own sees the job succeeded, once."""
    seen: list[str] = []

    def handler() -> None:
        transaction.on_commit(lambda: seen.append(the_job().state))

    declare(handler).enqueue()

    run_one()

    assert seen == ["succeeded"]


class Counted(list[int]):
    """A list that knows how often it was read."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        Counted.reads += 1
        return super().__iter__()


def test_result_is_read_once(declare: Declare) -> None:
    """What is stored is what was looked at when the handler returned, and no second look costs time."""
    declare(lambda: Counted([1, 2])).enqueue()
    Counted.reads = 0

    run_one()

    assert (Counted.reads, the_job().payload.result) == (1, "[1,2]")
