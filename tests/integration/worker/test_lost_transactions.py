"""A transaction that the database ended by itself never becomes a success without its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_jobs import JobContext
from tests.integration.worker.conftest import Declare, run_one, the_job, write

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sqlite]

Table = Callable[[], list[int]]


def lose_the_transaction() -> None:
    """Do what SQLite does on a full disk: roll the whole transaction back below Django."""
    connection.connection.rollback()


def plain() -> None:
    """Write, and go on although the transaction is gone."""
    write(1)
    lose_the_transaction()


def completing(context: JobContext) -> None:
    """Do the same inside a completion."""
    with context.complete():
        write(1)
        lose_the_transaction()


def stepping(context: JobContext) -> None:
    """Do the same inside a step."""
    context.step("only", plain)


@pytest.mark.parametrize(("handler", "takes_context"), [(plain, False), (completing, True), (stepping, True)])
def test_vanished_transaction_is_a_failure(
    declare: Declare, table: Table, handler: Callable[..., Any], takes_context: bool
) -> None:
    """The job fails and runs again; neither a success nor a finished step is recorded without its rows."""
    declare(handler, takes_context=takes_context).enqueue()

    attempt = run_one()

    assert (attempt.outcome, attempt.error_type.rpartition(".")[2]) == ("failed", "JobsError")
    assert table() == []
    assert the_job().state in {"failed", "queued"}
    assert not the_job().steps.exists()
