"""An attempt that is taken back between its last statement and its COMMIT: what runs on commit runs for real ones only."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_jobs import JobContext
from django_jobs.models import Job
from django_jobs.worker import context, execute
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.connection import cut
from tests.integration.worker.conftest import Declare, run, take, the_job, write

pytestmark = pytest.mark.django_db(transaction=True)

Table = Callable[[], list[int]]
hooks: list[str] = []


def work() -> None:
    """Write a row, and leave something to be run on commit."""
    write(1)
    transaction.on_commit(lambda: hooks.append("ran"))


def completing(context: JobContext) -> None:
    """Do it inside a completion."""
    with context.complete():
        work()


def stepping(context: JobContext) -> None:
    """Do it inside a step."""
    context.step("only", work)


def own_block() -> None:
    """Do it in a transaction of the handler's own, after which the cut comes."""
    with transaction.atomic():
        work()
        last_words()


def last_words() -> None:
    """Do nothing; a cut may come here."""


PLACES: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[Any, str]]] = {
    "atomic": (work, {}, (execute, "succeed")),
    "complete": (completing, {"takes_context": True}, (context, "succeed")),
    "step": (stepping, {"takes_context": True}, (context, "remember_step")),
    "own-block": (own_block, {"atomic": False}, (sys.modules[__name__], "last_words")),
}


def cut_after(monkeypatch: pytest.MonkeyPatch, attempt: RunningAttempt, place: tuple[Any, str]) -> None:
    """Take the attempt back as the loop does, from another thread, right after the last statement."""
    module, name = place
    original = getattr(module, name)

    def last_statement(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        attempt.revoke("it ran past its lease")
        loop = threading.Thread(target=lambda: attempt.disconnect(cut))
        loop.start()
        loop.join()
        return result

    monkeypatch.setattr(module, name, last_statement)


@pytest.mark.parametrize("name", PLACES)
def test_cut_before_the_commit_runs_nothing_on_commit(
    declare: Declare, table: Table, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The transaction was cut away: no row, no hook, no success; the next attempt commits, and the hook runs once."""
    handler, options, place = PLACES[name]
    hooks.clear()
    declare(handler, **options).enqueue()
    attempt = take()
    with monkeypatch.context() as patch:
        cut_after(patch, attempt, place)
        run(attempt)

    assert hooks == []
    assert table() == []
    assert not attempt.completed
    assert the_job().state == "running", "its end is told by whoever took it back"
    Job.objects.update(state="queued", attempt_id=None, lease_owner=None, lease_child=None, lease_expires_at=None)

    run(take())

    assert hooks == ["ran"]
    assert table() == [1]
    assert the_job().state == "succeeded"


def test_commit_that_happened_before_the_cut_is_a_success(declare: Declare, table: Table) -> None:
    """A cut that comes after the COMMIT changes nothing: success, row and hook are there."""
    hooks.clear()
    attempts: list[RunningAttempt] = []

    def hook() -> None:
        loop = threading.Thread(target=lambda: attempts[0].disconnect(cut))
        loop.start()
        loop.join()
        hooks.append("ran")

    def cutting() -> None:
        write(1)
        transaction.on_commit(hook)

    declare(cutting).enqueue()
    attempts.append(take())

    run(*attempts)

    assert hooks == ["ran"]
    assert attempts[0].completed
    assert table() == [1]
    assert the_job().state == "succeeded"
