"""F9: a database that restarts again and again under load, and in the middle of transactions of the worker's own."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from django.db import connections, transaction

from django_jobs import publish
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.models import Attempt, Delivery
from tests.acceptance.conftest import MakeWorker, wait_until_done
from tests.acceptance.handlers import work
from tests.acceptance.outbox_handlers import HAPPENED
from tests.acceptance.workers import Witness, wait_for
from tests.clusters import Cluster

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.slow]

Rows = Callable[[], Counter[int]]


@pytest.mark.parametrize("point", ["reap.after_select", "reap.after_update", "reap.after_commit"])
def test_f09_restart_while_a_lost_job_is_taken_back(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, rows: Rows, tmp_path: Path, point: str
) -> None:
    """The supervisor stands inside the transaction while the server restarts: it is repeated, and the job is lost once."""
    marker = tmp_path / "fired"
    fault = Fault(point=point, kind="freeze", marker=str(marker)).to_json()
    job_id = work.enqueue(n=1, seconds=2.0).id
    worker = make_worker(database_url=own_server.url(), threads=1, env={VARIABLE: fault}).start()
    started = wait_for(lambda: witness.lines("start"), seconds=120, what="the start")[0]

    os.kill(started["pid"], signal.SIGKILL)
    wait_for(marker.exists, what="the rescue")
    assert json.loads(marker.read_text())["pid"] == worker.pid
    connections.close_all()
    own_server.restart(mode="immediate")
    os.kill(worker.pid, signal.SIGCONT)
    wait_until_done(seconds=60)

    assert worker.is_running(), worker.text
    assert list(Attempt.objects.filter(job_id=job_id).order_by("number").values_list("outcome", flat=True)) == [
        "lost",
        "succeeded",
    ]
    assert rows() == {1: 1}


def _is_delivering(url: str) -> bool:
    with psycopg.connect(url) as looking:
        found = looking.execute("SELECT 1 FROM django_jobs_delivery WHERE state = 'claimed'").fetchone()
    return found is not None


@pytest.mark.timeout(600)
def test_f09_restarts_while_events_are_delivered(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Three restarts while a dispatcher has events in its hands: each event reaches its subscriber, once."""
    env = {"JOBS_IMPORTS": "tests.acceptance.outbox_handlers", "JOBS_DELIVERY_TIMEOUT": "1"}
    worker = make_worker(database_url=own_server.url(), threads=2, env=env).start().wait_ready(seconds=180)
    before, count = worker.group(), 0
    for _ in range(3):
        for _ in range(100):
            with transaction.atomic():
                publish(HAPPENED, {"order_id": count}, ordering_key=f"order:{count % 7}")
            count += 1
        connections.close_all()
        wait_for(lambda: _is_delivering(own_server.url()) or witness.lines("happened"), what="a delivery")
        own_server.restart(mode="immediate")
    connections.close_all()
    wait_for(lambda: not Delivery.objects.exclude(state="published").exists(), seconds=120, what="all deliveries")
    wait_until_done(seconds=120)

    assert worker.group() == before, worker.text
    assert rows() == Counter(dict.fromkeys(range(count), 1))
