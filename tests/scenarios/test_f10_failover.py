"""F10: the primary dies and a standby takes its place: nothing acknowledged is lost, or only together with its business row."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_jobs.models import Job
from django_jobs.operate.verify import verify
from django_jobs.testing.proxy import PostgresProxy
from testproject.payments.process import ProviderProcess
from tests.acceptance.conftest import MakeWorker, count_rows, outcomes, states, wait_until_done
from tests.acceptance.handlers import insert_row
from tests.acceptance.workers import Witness, pass_time, wait_for
from tests.clusters import Binaries, Cluster
from tests.databases import Server
from tests.scenarios.charges import keyed
from tests.standbys import Standby

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.timeout(900),
]


class Producer:
    """Enqueues with a business row in the same transaction, and remembers what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.tried = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self.tried += 1
            with suppress(DatabaseError, InterfaceError):
                self._produce(self.tried)
                self.acknowledged.add(self.tried)
                continue
            connections["default"].close()
        connections.close_all()

    def _produce(self, n: int) -> None:
        with transaction.atomic():
            insert_row(-n)
            keyed.using(key=f"order:{n}").enqueue(n=n, seconds=0.05)


@pytest.fixture
def standby(own_server: Cluster, postgres_binaries: Binaries) -> Iterator[Standby]:
    """A second server beside the one of this test."""
    made = Standby(binaries=postgres_binaries, primary=own_server)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def front(own_server: Cluster, server: Server) -> Iterator[PostgresProxy]:
    """What clients connect to, as to a load balancer: the primary, until somebody points it at another server."""
    with PostgresProxy(own_server.url()) as proxy:
        Server(vendor="postgresql", url=proxy.url).activate()
        yield proxy
        connections.close_all()
        server.activate()


def fail_over(
    own: Cluster,
    standby: Standby,
    front: PostgresProxy,
    make_worker: MakeWorker,
    provider: ProviderProcess,
    *,
    lag: bool,
) -> Producer:
    """Fail over while producers and workers run; return the producer when every job has ended."""
    env = {"JOBS_IMPORTS": "tests.scenarios.charges", "PAYMENTS_URL": provider.url}
    workers = [make_worker(database_url=front.url, threads=2, env=env).start() for _ in range(2)]
    for worker in workers:
        worker.wait_ready(seconds=180)
    before = [worker.group() for worker in workers]
    with Producer() as producer:
        wait_for(lambda: len(producer.acknowledged) >= 50, seconds=120, what="work")
        if lag:
            standby.stop_hearing()
            known = len(producer.acknowledged)
            wait_for(lambda: len(producer.acknowledged) >= known + 20, seconds=60, what="commits that will vanish")
        own.stop(mode="immediate")
        standby.promote()
        front.point_at(standby.url())
        front.reset_all()
        known = len(producer.acknowledged)
        wait_for(lambda: len(producer.acknowledged) >= known + 50, seconds=120, what="work after the failover")
        pass_time(1)
    connections.close_all()
    wait_until_done(seconds=180)
    assert [worker.group() for worker in workers] == before, "a process ended"
    return producer


def check(producer: Producer, provider: ProviderProcess) -> tuple[set[int], set[int]]:
    """Assert what holds after any failover; return which orders exist, and which were charged."""
    rows = count_rows()
    jobs = {int(key.partition(":")[2]) for key in Job.objects.values_list("payload__key", flat=True)}
    assert set(states()) == {"succeeded"}
    assert {-n for n in rows if n < 0} == jobs, "a business row is there exactly with its job"
    assert Counter({n: rows[n] for n in rows if n > 0}) == Counter(dict.fromkeys(jobs, 1))
    assert [item.invariant.name for item in verify(using="default").violated] == []
    applied = {int(n): many for n, many in provider.ledger()["applied_per_order"].items()}
    assert {n: many for n, many in applied.items() if many > 1} == {}, "charged twice"
    assert jobs <= set(applied)
    return jobs, set(applied)


def test_f10_synchronous_standby_loses_nothing(
    own_server: Cluster,
    standby: Standby,
    front: PostgresProxy,
    make_worker: MakeWorker,
    witness: Witness,
    tmp_path: Path,
) -> None:
    """Every acknowledged job is there and ends once, charged once; the workers are the same processes."""
    standby.follow(synchronous=True)
    with ProviderProcess(ledger=tmp_path / "ledger.db", start_timeout=60) as provider:
        producer = fail_over(own_server, standby, front, make_worker, provider, lag=False)
        jobs, _ = check(producer, provider)

    assert producer.acknowledged <= jobs, "an acknowledged job is gone"
    print(f"\nF10 synchronous: {len(producer.acknowledged)} acknowledged, 0 lost; attempts {dict(outcomes())}")


def test_f10_asynchronous_standby_loses_job_and_row_together(
    own_server: Cluster,
    standby: Standby,
    front: PostgresProxy,
    make_worker: MakeWorker,
    witness: Witness,
    tmp_path: Path,
) -> None:
    """The last commits vanish, each with its business row; jobs that went back in time charge nobody twice."""
    standby.follow(synchronous=False)
    with ProviderProcess(ledger=tmp_path / "ledger.db", start_timeout=60) as provider:
        producer = fail_over(own_server, standby, front, make_worker, provider, lag=True)
        jobs, charged = check(producer, provider)

    gone = producer.acknowledged - jobs
    assert gone, "nothing was lost, so nothing was tried"
    print(
        f"\nF10 asynchronous: {len(producer.acknowledged)} acknowledged, {len(gone)} vanished with their rows, "
        f"{len(charged - jobs)} of them were charged before; attempts {dict(outcomes())}"
    )
