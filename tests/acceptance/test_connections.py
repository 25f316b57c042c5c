"""Every way to configure connections: ended connections and a restarted server cost no job and no process."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest
from django.db import OperationalError, connection, connections, transaction

from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, states, wait_until_done
from tests.acceptance.handlers import row, work
from tests.acceptance.test_outage import end_connections
from tests.acceptance.workers import Witness, WorkerProcess, pass_time, wait_for
from tests.clusters import Cluster
from tests.databases import Server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Rows = Callable[[], Counter[int]]

# Django refuses a pool together with connections that are kept.
CELLS = [
    f"conn_max_age={age}&conn_health_checks={health}{pool}"
    for (age, pool), health in itertools.product([("0", ""), ("60", ""), ("0", "&pool=true")], ["true", "false"])
]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_f09_connections_ended_and_server_restarted_in_every_configuration(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Connections ended every 2 s for 20 s, one restart: same processes, all jobs succeed once, flow back within 5 s."""
    queues = [f"cell-{number}" for number in range(len(CELLS))]
    workers = [
        make_worker(database_url=f"{own_server.url()}?{cell}", threads=2, arguments=("--queue", queue)).start()
        for cell, queue in zip(CELLS, queues, strict=True)
    ]
    for worker in workers:
        worker.wait_ready(seconds=180)
    before = [worker.group() for worker in workers]
    numbers = itertools.count()
    made: Counter[int] = Counter()

    def fill(each: int) -> dict[str, list[int]]:
        given: dict[str, list[int]] = {queue: [] for queue in queues}
        for queue in queues:
            given[queue] = [next(numbers) for _ in range(2 * each)]
            row.using(queue_name=queue).enqueue_many([{"n": n, "seconds": 0.02} for n in given[queue][:each]])
            work.using(queue_name=queue).enqueue_many([{"n": n, "seconds": 0.02} for n in given[queue][each:]])
            made.update(given[queue])
        return given

    flows: dict[str, float] = {}
    for turn in range(10):
        pass_time(2)
        if turn != 5:
            end_connections()
            fill(3)
            continue
        own_server.restart(mode="immediate")
        back = time.monotonic()
        connections.close_all()
        for queue, mine in fill(3).items():
            first = wait_for(lambda mine=mine: [line for line in witness.lines("end") if line["n"] in mine])[0]
            flows[queue] = first["at"] - back
    wait_until_done(seconds=120)

    print("\n" + "\n".join(f"{cell}: flow back after {flows[q]:.2f} s" for cell, q in zip(CELLS, queues, strict=True)))
    assert [worker.group() for worker in workers] == before
    assert states() == {"succeeded": sum(made.values())}
    assert rows() == made
    assert max(flows.values()) <= 5, flows


def run_thousand(make_worker: MakeWorker, url: str, *, jobs: int) -> list[WorkerProcess]:
    """Run jobs on four workers under this URL; each kind of handler, with all rows stored once."""
    half = jobs // 2
    row.enqueue_many([{"n": n} for n in range(half)])
    work.enqueue_many([{"n": n} for n in range(half, jobs)])
    workers = [make_worker(database_url=url, threads=2).start() for _ in range(4)]
    wait_until_done(seconds=180)
    return workers


LEVELS = {
    "repeatable read, set in Django": "isolation_level=repeatable_read",
    "serializable, set in Django": "isolation_level=serializable",
    "repeatable read, set on the server": "options=-c default_transaction_isolation=repeatable\\ read",
    "serializable, set on the server": "options=-c default_transaction_isolation=serializable",
}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("query", LEVELS.values(), ids=LEVELS)
def test_stricter_isolation_runs_every_job_once_r50(
    make_worker: MakeWorker, rows: Rows, database_url: str, query: str
) -> None:
    """1,000 jobs on four workers under a stricter isolation level: each succeeds once, in one attempt."""
    workers = run_thousand(make_worker, f"{database_url}?{query}", jobs=1000)

    told = "".join(worker.text for worker in workers)
    assert states() == {"succeeded": 1000}
    assert rows() == dict.fromkeys(range(1000), 1)
    assert "does not answer" not in told, told
    retried = Attempt.objects.exclude(outcome="succeeded").values_list("error_type", "message")
    print(f"\n{len(retried)} attempts ran once more: {Counter(retried)}")
    assert not Job.objects.filter(lost_count__gt=0).exists()


@pytest.mark.slow
def test_serialization_failure_of_a_producer_is_its_own_r50(server: Server, rows: Rows) -> None:
    """Under serializable isolation the producer's transaction gets the database's own error, and nothing is retried."""
    Server(vendor="postgresql", url=f"{server.url}?isolation_level=serializable").activate()
    try:
        with pytest.raises(OperationalError, match="could not serialize"), transaction.atomic():
            _enqueue_beside_another_writer(server.url)
        assert not Job.objects.exists()
    finally:
        server.activate()


def _enqueue_beside_another_writer(url: str) -> None:
    """Both read what the other one writes: only one of them can commit."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM acceptance_witness")
        row.enqueue(n=1)
        _write_what_it_read(url)
        cursor.execute("INSERT INTO acceptance_witness (n, pid) VALUES (1, 1)")


def _write_what_it_read(url: str) -> None:
    with psycopg.connect(url) as other:
        other.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        other.execute("SELECT count(*) FROM acceptance_witness")
        other.execute("INSERT INTO acceptance_witness (n, pid) VALUES (2, 2)")
