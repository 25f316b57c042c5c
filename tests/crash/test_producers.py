"""A producer that is hit while it enqueues: the job and its business row are both there or both not, and once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction

from django_jobs import faults
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.faults.kinds import KINDS, InjectedError
from django_jobs.models import Job
from tests.acceptance.handlers import insert_row
from tests.acceptance.workers import ROOT
from tests.crash.handlers import keyed

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
ERRORS = (InjectedError, OperationalError, InterfaceError, InternalError)
AGAIN = ("deadlock", "serialization")  # what a statement outside of a transaction is run again after
LOST = ("lose_request", "lose_reply", "terminate", "lock_timeout", "disk_full", *AGAIN)
# What the repeat of a producer that got an error, or that was hit right after it got none, is told.
REPEATED: dict[tuple[str, bool], dict[str, str]] = {
    ("enqueue.before_insert", False): {
        **dict.fromkeys(("raise", *LOST), "created"),
        **dict.fromkeys(("lose_reply", *AGAIN), "duplicate"),
    },
    ("enqueue.before_insert", True): {"raise": "created", **dict.fromkeys(LOST, "created")},
    ("enqueue.after_insert", True): {"raise": "created", **dict.fromkeys(LOST, "created"), "lose_reply": "duplicate"},
    ("enqueue.after_commit", False): {"raise": "duplicate", **dict.fromkeys(LOST, "duplicate")},
}


def produce(n: int, *, atomic: bool) -> str:
    """Enqueue, with a row in the same transaction if it is one; returns the outcome."""
    if not atomic:
        return keyed.enqueue(n=n).outcome
    with transaction.atomic():
        insert_row(n)
        return keyed.enqueue(n=n).outcome


def repeat(rows: Rows, point: str, kind: str, *, atomic: bool) -> None:
    """Hit a producer, and let it try once more as a new request would."""
    with faults.armed(point, KINDS[kind]) as fired, suppress(*ERRORS):
        produce(1, atomic=atomic)
    assert fired()
    connection.close()  # as a web process does before its next request

    stored = Job.objects.count()
    if atomic:
        assert rows()[1] == stored
    assert keyed.enqueue(n=1).outcome == REPEATED[point, atomic][kind]
    assert stored == (REPEATED[point, atomic][kind] == "duplicate")
    assert Job.objects.count() == 1


@pytest.mark.parametrize(("point", "atomic"), REPEATED)
def test_repeat_of_a_producer_whose_own_code_failed(rows: Rows, point: str, atomic: bool) -> None:
    """It finds the job if it was stored, and stores it if not; the business row is there exactly with the job."""
    repeat(rows, point, "raise", atomic=atomic)


@pytest.mark.postgres
@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize(("point", "atomic"), REPEATED)
def test_repeat_of_a_producer_whose_server_did_not_answer(rows: Rows, point: str, atomic: bool, kind: str) -> None:
    """The same when a request, a reply or the session was lost, or a statement was refused."""
    repeat(rows, point, kind, atomic=atomic)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "atomic"), REPEATED)
def test_killed_producer(rows: Rows, point: str, atomic: bool, database_url: str, tmp_path: Path) -> None:
    """A producer that dies before its commit has stored neither job nor row; after it, the job is there to be found."""
    marker = tmp_path / "fired"
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        VARIABLE: Fault(point=point, kind="kill", marker=str(marker)).to_json(),
    }
    command = [sys.executable, "-m", "tests.crash.producer", "1", *(["atomic"] if atomic else [])]
    ended = subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=60)

    assert (ended.returncode, marker.exists()) == (-signal.SIGKILL, True)
    stored = Job.objects.count()
    assert stored == (point == "enqueue.after_commit")
    if atomic:
        assert rows()[1] == 0
    assert keyed.enqueue(n=1).outcome == ("duplicate" if stored else "created")
