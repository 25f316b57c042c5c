"""A handler that ends its transaction itself is no success, however it says so: several statements, a call of the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from django_jobs import JobContext
from tests.integration.worker.conftest import TABLE, Declare, run_one, the_job, write

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
ROW = f"INSERT INTO {TABLE} (n) VALUES (1)"
ENDING = [f"{ROW}; COMMIT", f"{ROW}; COMMIT; BEGIN", f"{ROW};\n/* no */ end;begin ;", f"{ROW}; ROLLBACK; BEGIN"]
ENDING_POSTGRES = [
    f"{ROW}; COMMIT AND CHAIN",
    f"SELECT ';'; {ROW}; COMMIT; SELECT 1; BEGIN",
    f"{ROW}; COMMIT; SELECT 1/0",
]
HARMLESS = [
    f"{ROW};",
    f"{ROW}; SELECT '; COMMIT; BEGIN'",
    f"SAVEPOINT here; {ROW}; RELEASE SAVEPOINT here",
    f"SAVEPOINT here; {ROW}; ROLLBACK TO SAVEPOINT here; {ROW}",
]


def send(text: str) -> None:
    """Send statements in one piece, as each driver takes them; an error is swallowed, as a careless handler would."""
    with connection.cursor() as cursor:
        try:
            (cursor.executescript if connection.vendor == "sqlite" else cursor.execute)(text)
        except Exception:
            return


def assert_failed_by_its_own_end() -> None:
    """The attempt failed, says why, and left no success."""
    attempt = run_one()
    assert attempt.outcome == "failed"
    assert "ended the transaction" in attempt.message
    assert the_job().state in {"failed", "queued"}


@pytest.mark.parametrize("more", [True, False], ids=["and-on", "last"])
@pytest.mark.parametrize("text", ENDING)
def test_end_inside_one_text_is_no_success(declare: Declare, table: Table, text: str, more: bool) -> None:
    """The statement that ends the transaction may stand behind another one, and a new transaction behind it."""

    def handler() -> None:
        send(text)
        if more:
            write(2)

    declare(handler).enqueue()

    assert_failed_by_its_own_end()


@pytest.mark.postgres
@pytest.mark.parametrize("text", ENDING_POSTGRES)
def test_end_inside_one_text_of_postgresql_is_no_success(declare: Declare, table: Table, text: str) -> None:
    """Also one that begins the next transaction by itself, and one whose last statement fails."""

    def handler() -> None:
        write(0)
        send(text)
        write(2)

    declare(handler).enqueue()

    assert_failed_by_its_own_end()


@pytest.mark.parametrize("how", ["complete", "step"])
def test_end_inside_a_completion_or_a_step_is_no_success(declare: Declare, table: Table, how: str) -> None:
    """What commits with the success, or with the record of a step, is guarded in the same way."""

    def work() -> None:
        write(0)
        send(ENDING[1])

    def handler(context: JobContext) -> None:
        if how == "step":
            context.step("only", work)
        else:
            with context.complete():
                work()

    declare(handler, takes_context=True).enqueue()

    assert_failed_by_its_own_end()
    assert not the_job().steps.exists()


@pytest.mark.parametrize("more", [True, False], ids=["and-on", "last"])
@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_end_by_a_call_of_the_driver_is_no_success(declare: Declare, table: Table, how: str, more: bool) -> None:
    """The driver's own method, which no cursor sees."""

    def handler() -> None:
        write(1)
        getattr(connection.connection, how)()
        if more:
            write(2)

    declare(handler).enqueue()

    attempt = run_one()

    assert attempt.outcome == "failed"
    assert "ended the transaction" in attempt.message


@pytest.mark.postgres
@pytest.mark.parametrize("text", HARMLESS)
def test_several_statements_that_end_nothing_are_a_success(declare: Declare, table: Table, text: str) -> None:
    """Semicolons, words in strings and savepoints mean nothing by themselves."""

    def handler() -> None:
        send(text)
        write(2)

    declare(handler).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [1, 2]


@pytest.mark.postgres
def test_failed_text_behind_a_savepoint_is_a_success(declare: Declare, table: Table) -> None:
    """Rolled back to the savepoint before it, a text of several statements that failed leaves the transaction whole."""

    def handler() -> None:
        write(1)
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"{ROW}; SELECT 1/0")
        write(2)

    declare(handler).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [1, 2]


@pytest.mark.postgres
def test_refused_cursor_is_no_end(declare: Declare, table: Table) -> None:
    """A statement that never reached the server has ended nothing."""

    def handler() -> None:
        cursor: Any = connection.connection.cursor()
        cursor.close()
        with pytest.raises(Exception, match="closed"):
            cursor.execute(f"{ROW}; COMMIT")
        write(2)

    declare(handler).enqueue()

    assert run_one().outcome == "succeeded"
    assert table() == [2]
