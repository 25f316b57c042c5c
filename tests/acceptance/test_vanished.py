"""A host that vanishes inside a completion, its connection open without a word, holds the job's row for a bounded time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from django_jobs.models import Attempt
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import held_long, held_shortly
from tests.acceptance.workers import Witness, WorkerProcess, wait_for

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

Rows = Callable[[], Counter[int]]


def _vanish_inside(make_worker: MakeWorker, witness: Witness, declared: Any) -> WorkerProcess:
    """Freeze a worker that holds its job's row: the kernel keeps its connections open, and nothing answers on them."""
    declared.enqueue(n=1, seconds=600)
    vanished = make_worker(threads=1, arguments=("--name", "vanished")).start()
    wait_for(lambda: witness.lines("holding"), what=f"the completion: {vanished.text}")
    vanished.freeze()
    return vanished


def _seconds_until_free(url: str) -> float:
    """Return how long the row of the job is locked from now on."""
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True) as other:
        assert _locked(other), "nobody holds the row"
        wait_for(lambda: not _locked(other), seconds=60, what="the end of the lock")
    return time.monotonic() - began


def _locked(other: psycopg.Connection[Any]) -> bool:
    return other.execute("SELECT id FROM django_jobs_job FOR UPDATE SKIP LOCKED").fetchone() is None


def test_vanished_host_holds_its_row_for_the_rest_of_the_lease(
    make_worker: MakeWorker, witness: Witness, rows: Rows, database_url: str
) -> None:
    """With a lease of two seconds the row is free after them, and what the completion wrote is gone."""
    _vanish_inside(make_worker, witness, held_shortly)

    assert _seconds_until_free(database_url) < 6
    assert rows() == {}


@pytest.mark.long
def test_vanished_host_holds_its_row_for_15_seconds_at_most(
    make_worker: MakeWorker, witness: Witness, rows: Rows, database_url: str
) -> None:
    """With a minute of lease left, the row is free after 15 seconds, and another worker runs the job."""
    _vanish_inside(make_worker, witness, held_long)

    assert 10 < _seconds_until_free(database_url) < 17
    make_worker(threads=1, arguments=("--name", "other")).start()
    wait_until_done(seconds=60)
    assert rows() == {1: 1}
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "succeeded"]
