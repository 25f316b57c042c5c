"""F9: a database that restarts again and again under load, and in the middle of transactions of the worker's own."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from django.db import connections, transaction

from django_jobs import publish
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.models import Attempt, Delivery, Job, Subscription
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import row, work
from tests.acceptance.outbox_handlers import HAPPENED
from tests.acceptance.workers import QUICK, Witness, wait_for
from tests.clusters import Cluster

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres, pytest.mark.long]

Rows = Callable[[], Counter[int]]
PATIENT = {**QUICK, "JOBS_SILENT_AFTER": "60"}  # a restart may take long on a busy machine, and is nobody's silence


def restart(own: Cluster) -> float:
    """Restart the server as a crash does; returns when it was ready."""
    connections.close_all()
    own.restart(mode="immediate")
    return time.monotonic()


def restart_again_and_again(own: Cluster, witness: Witness, *, restarts: int) -> tuple[list[float], list[int]]:
    """Restart so many times while both workers are busy.

    Returns:
        How long it took each time until a job ended, and the numbers of all jobs whose enqueue was acknowledged.
    """
    flows, acknowledged = [], []
    for turn in range(restarts):
        mine = range(100 * turn, 100 * turn + 40)
        row.enqueue_many([{"n": n, "seconds": 0.05} for n in mine[:20]])
        work.enqueue_many([{"n": n, "seconds": 0.05} for n in mine[20:]])
        acknowledged += mine
        done = len(witness.lines("end"))
        wait_for(lambda done=done: len(witness.lines("end")) > done + 5, seconds=60, what="load")
        ready = restart(own)
        first = wait_for(lambda since=ready: [line for line in witness.lines("end") if line["at"] > since], seconds=60)
        flows.append(first[0]["at"] - ready)
    return flows, acknowledged


@pytest.mark.timeout(600)
def test_f09_ten_restarts_under_load(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Ten immediate restarts: same processes, nothing acknowledged is lost, work flows again within 5 s each time."""
    workers = [make_worker(database_url=own_server.url(), threads=2, times=PATIENT).start() for _ in range(2)]
    for worker in workers:
        worker.wait_ready(seconds=180)
    before = [worker.group() for worker in workers]

    flows, acknowledged = restart_again_and_again(own_server, witness, restarts=10)
    wait_until_done(seconds=120)

    told = ", ".join(f"{flow:.2f}" for flow in flows)
    print(f"\nF9: work flowed again {told} s after the server was ready; attempts {dict(outcomes())}")
    assert [worker.group() for worker in workers] == before, "a process ended"
    assert states() == {"succeeded": len(acknowledged)}, "an acknowledged job is gone"
    assert rows() == Counter(dict.fromkeys(acknowledged, 1))
    assert not Job.objects.filter(lost_count__gt=0).exists(), "nobody judged anybody because of a restart"
    assert [item.invariant.name for item in verify(using="default").violated] == []
    assert max(flows) <= 5


@pytest.mark.parametrize("point", ["reap.after_select", "reap.after_update", "reap.after_commit"])
def test_f09_restart_while_a_lost_job_is_taken_back(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, rows: Rows, tmp_path: Path, point: str
) -> None:
    """The supervisor stands inside the transaction while the server restarts: it is repeated, and the job is lost once."""
    marker = tmp_path / "fired"
    fault = Fault(point=point, kind="freeze", marker=str(marker)).to_json()
    job_id = work.enqueue(n=1, seconds=2.0).id
    worker = make_worker(database_url=own_server.url(), threads=1, times=PATIENT, env={VARIABLE: fault}).start()
    started = worker.wait_for(lambda: witness.lines("start"), seconds=120, what="the start")[0]

    os.kill(started["pid"], signal.SIGKILL)
    wait_for(marker.exists, what="the rescue")
    assert json.loads(marker.read_text())["pid"] == worker.pid
    restart(own_server)
    os.kill(worker.pid, signal.SIGCONT)
    wait_until_done(seconds=90)

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
    worker = make_worker(database_url=own_server.url(), threads=2, times=PATIENT, env=env).start()
    worker.wait_ready(seconds=180)
    # A child takes jobs before its dispatcher has looked for the first time; what is published until then has no route.
    worker.wait_for(Subscription.objects.exists, seconds=60, what="the subscription")
    before, count = worker.group(), 0
    for _ in range(3):
        done = len(witness.lines("happened"))
        for _ in range(100):
            with transaction.atomic():
                publish(HAPPENED, {"order_id": count}, ordering_key=f"order:{count % 7}")
            count += 1
        url = own_server.url()
        wait_for(lambda done=done, url=url: _is_delivering(url) or len(witness.lines("happened")) > done, seconds=60)
        restart(own_server)
    wait_for(lambda: not Delivery.objects.exclude(state="published").exists(), seconds=120, what="all deliveries")
    wait_until_done(seconds=120)

    assert worker.group() == before, worker.text
    assert rows() == Counter(dict.fromkeys(range(count), 1))
    assert [item.invariant.name for item in verify(using="default").violated] == []
