"""Waiting for a job through a database that goes away, and where waiting would never end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection

from django_jobs.enqueue import waiting
from django_jobs.enqueue.outcome import EnqueueResult
from django_jobs.exceptions import ResultTimeoutError, WouldWaitForeverError
from django_jobs.testing import JobsKit
from tests.declared import plain

Get = Callable[..., Any]


def awaited(result: EnqueueResult, **options: Any) -> Any:
    """Wait from async code."""
    return async_to_sync(result.aget)(**options)


gets = pytest.mark.parametrize("get", [EnqueueResult.get, awaited], ids=["get", "aget"])


@gets
@pytest.mark.django_db
def test_wait_without_an_end_inside_a_test_case_is_refused(jobs: JobsKit, get: Get) -> None:
    """No worker sees a job of a transaction that never commits; a job that has run here is answered."""
    result = plain.enqueue()
    with pytest.raises(WouldWaitForeverError, match="JobsKit"):
        get(result)
    with pytest.raises(ResultTimeoutError):
        get(result, timeout=0.01)
    jobs.drain()
    assert get(result) is None


@gets
@pytest.mark.django_db(transaction=True)
def test_lost_connection_does_not_end_the_wait(jobs: JobsKit, get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database goes away twice; the read that comes through gives the value."""
    result = plain.enqueue()
    jobs.drain()
    lost: list[int] = []
    read = waiting.read

    def loses(*args: Any, **kwargs: Any) -> Any:
        if len(lost) < 2:
            lost.append(1)
            raise OperationalError("server closed the connection unexpectedly")
        assert connection.connection is None or connection.vendor == "sqlite", "it was closed"
        return read(*args, **kwargs)

    monkeypatch.setattr(waiting, "read", loses)
    monkeypatch.setattr(waiting, "FIRST_LOOK", 0.0)
    assert get(result, timeout=20) is None
    assert len(lost) == 2


@gets
@pytest.mark.django_db(transaction=True)
def test_database_that_stays_away_is_told_when_the_time_is_over(get: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look raises what the database answers."""
    result = plain.enqueue()
    looks: list[int] = []

    def loses(*args: Any, **kwargs: Any) -> Any:
        looks.append(1)
        raise OperationalError("connection refused")

    monkeypatch.setattr(waiting, "read", loses)
    with pytest.raises(OperationalError, match="connection refused"):
        get(result, timeout=0.05)
    assert len(looks) > 1


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_session_that_the_server_ended_is_replaced(jobs: JobsKit, database_url: str) -> None:
    """A terminated session is what a restart of the database leaves; the wait goes on in another one."""
    result = plain.enqueue()
    jobs.drain()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert result.get(timeout=20) is None
