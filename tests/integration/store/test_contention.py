"""Statements that lost against another transaction are run again, a bounded number of times."""

from __future__ import annotations

import psycopg
import pytest
from django.db import OperationalError

from django_jobs.store import contention
from django_jobs.store.contention import TRIES, is_contention, run_again


def failure(cause: type[psycopg.Error]) -> OperationalError:
    """Return the error as Django raises it."""
    error = OperationalError("no")
    error.__cause__ = cause("no")
    return error


class Statement:
    """Fails with the given errors, then returns how often it was called."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        """Run once."""
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses take no time here."""
    monkeypatch.setattr(contention.time, "sleep", lambda seconds: None)


@pytest.mark.parametrize("cause", [psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected])
def test_contention_is_tried_again(cause: type[psycopg.Error]) -> None:
    """A serialization failure or a deadlock undid everything: the statement runs once more."""
    assert run_again(Statement(failure(cause), failure(cause))) == 3


@pytest.mark.parametrize("cause", [psycopg.errors.UniqueViolation, psycopg.errors.AdminShutdown])
def test_other_errors_are_raised_at_once(cause: type[psycopg.Error]) -> None:
    """An error that says something about the statement or the connection is the caller's."""
    statement = Statement(failure(cause))

    with pytest.raises(OperationalError):
        run_again(statement)

    assert statement.calls == 1
    assert not is_contention(failure(cause))


def test_tries_end() -> None:
    """After the last try the database's own error is raised."""
    statement = Statement(*[failure(psycopg.errors.SerializationFailure)] * TRIES)

    with pytest.raises(OperationalError):
        run_again(statement)

    assert statement.calls == TRIES
