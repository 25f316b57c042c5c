"""Kinds of faults that a server's answers stand for: each is the real answer, and what it leaves behind is real."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.db import InternalError, OperationalError, connection, transaction

from django_jobs.faults.kinds import KINDS
from django_jobs.models import QueueControl

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

CODES = {"deadlock": "40P01", "serialization": "40001", "lock_timeout": "55P03", "disk_full": "53100"}


def stored() -> int:
    """Return how many rows are there."""
    return QueueControl.objects.count()


def store(name: str) -> None:
    """Write a row."""
    QueueControl.objects.create(queue_name=name)


@pytest.mark.parametrize("kind", CODES)
def test_next_statement_is_refused_once(kind: str) -> None:
    """It fails with the server's code, and the one after it is done on the same session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        session = cursor.fetchone()
    KINDS[kind]("default")

    with pytest.raises(OperationalError) as caught:
        store("first")
    store("second")

    assert caught.value.__cause__.sqlstate == CODES[kind]  # type: ignore[union-attr]
    assert stored() == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        assert cursor.fetchone() == session


@transaction.atomic
def store_and_refuse(kind: str, *, swallow: bool) -> None:
    """Write a row and have the next statement refused: a query whose error is swallowed, or the COMMIT."""
    store("before")
    KINDS[kind]("default")
    if swallow:
        with suppress(OperationalError), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")


def test_open_transaction_is_broken() -> None:
    """After a refused statement the server does nothing more in that transaction, whoever swallows the error."""
    with pytest.raises(InternalError, match="current transaction is aborted"):
        store_and_refuse("deadlock", swallow=True)

    assert stored() == 0


def test_refused_commit_has_rolled_back() -> None:
    """A COMMIT that is the next statement is refused; nothing is stored, and the session goes on."""
    with pytest.raises(OperationalError):
        store_and_refuse("serialization", swallow=False)
    assert stored() == 0

    with transaction.atomic():
        store("after")
    assert stored() == 1


def test_crowded_server_refuses_one_connection() -> None:
    """The session is lost, the next try to connect is refused, and the one after it succeeds."""
    store("before")
    KINDS["crowd"]("default")
    with pytest.raises(OperationalError):
        store("lost")
    connection.close()

    with pytest.raises(OperationalError, match="too many clients"):
        store("refused")
    store("after")

    assert stored() == 2
