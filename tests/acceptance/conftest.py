"""What every acceptance test starts from: a witness, a table for business rows, and a maker of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from django_jobs.models import Attempt, Job
from tests.acceptance.handlers import WITNESS_TABLE
from tests.acceptance.workers import Witness, WorkerProcess, wait_for
from tests.clusters import Cluster
from tests.databases import Server

MakeWorker = Callable[..., WorkerProcess]


# Whole files that take up to a minute or two each: the quick run keeps the demo on
# SQLite, which kills and freezes workers, and what wakes them.
SLOW_FILES = frozenset(
    [
        *(
            "test_blind",
            "test_cancel",
            "test_compensation",
            "test_frozen",
            "test_growth",
            "test_kill",
            "test_metrics",
            "test_outage",
            "test_outbox",
            "test_overdue",
        ),
        *("test_poison", "test_replay_many", "test_reports", "test_stop", "test_suspects", "test_vanished"),
    ]
)
SLOW_TEST = "test_demo_charges_every_order_once_through_all_faults[postgresql"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the slow files to the run of slow tests; what is longer still stays apart."""
    for item in items:
        # The hook sees the items of every folder, and other folders have files of the same name.
        here = item.path.parent == Path(__file__).parent
        is_slow = item.path.stem in SLOW_FILES or item.name.startswith(SLOW_TEST)
        if here and is_slow and not item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Witness:
    """The file in which handlers tell what they do."""
    path = tmp_path / "witness.jsonl"
    monkeypatch.setenv("JOBS_WITNESS", str(path))
    return Witness(path=path)


@pytest.fixture
def rows(transactional_db: None) -> Iterator[Callable[[], Counter[int]]]:
    """The table of business rows; call it to count the rows of each ``n``."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {WITNESS_TABLE}")
        cursor.execute(f"CREATE TABLE {WITNESS_TABLE} (n integer, pid integer)")
    yield count_rows
    connections.close_all()
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {WITNESS_TABLE}")


def count_rows() -> Counter[int]:
    """Return how many business rows each ``n`` has."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT n, count(*) FROM {WITNESS_TABLE} GROUP BY n")
        return Counter(dict(cursor.fetchall()))


@pytest.fixture
def own_server(cluster: Cluster, server: Server, rows: object) -> Iterator[Cluster]:
    """A PostgreSQL of this test's own as the alias default, with its tables."""
    own = Server(vendor="postgresql", url=cluster.url())
    own.activate()
    own.migrate()
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {WITNESS_TABLE} (n integer, pid integer)")
    yield cluster
    connections.close_all()
    server.activate()


@pytest.fixture
def make_worker(
    rows: object, database_url: str, witness: Witness, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., WorkerProcess]]:
    """Make workers that are gone after the test, whatever happens in it."""
    made: list[WorkerProcess] = []

    def make(**options: Any) -> WorkerProcess:
        values = {
            "database_url": database_url,
            "witness": witness,
            "log": tmp_path / f"worker{len(made)}.log",
            "bytecode": tmp_path_factory.getbasetemp() / "bytecode",
        }
        made.append(WorkerProcess(**{**values, **options}))
        return made[-1]

    yield make
    for worker in made:
        worker.kill_group()


def states() -> Counter[str]:
    """Return how many jobs are in each state."""
    return Counter(Job.objects.values_list("state", flat=True))


def outcomes() -> Counter[str]:
    """Return how many attempts ended in each way."""
    return Counter(str(outcome) for outcome in Attempt.objects.values_list("outcome", flat=True))


def wait_until_done(*, seconds: float) -> None:
    """Wait until no job is waiting or running."""
    unfinished = {"scheduled", "queued", "running", "failed"}
    wait_for(lambda: not unfinished & set(states()), seconds=seconds, what="the end of all jobs")
