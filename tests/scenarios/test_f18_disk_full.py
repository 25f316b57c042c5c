"""F18: the disk of the database is full: producers are told, workers wait without a crash, and go on when there is room."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import OperationalError, connection, connections

from django_jobs.models import Job
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import WITNESS_TABLE, work
from tests.acceptance.test_outage import gaps, outage_lines
from tests.acceptance.workers import Witness, pass_time, wait_for
from tests.clusters import Binaries, Cluster, _server_user
from tests.databases import Server

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

Rows = Callable[[], Counter[int]]
SIZE = "48m"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of its own with little room; only root can make one."""
    if os.geteuid() != 0:
        pytest.fail("This test mounts a small file system, which needs root; run without '-m long'.")
    folder = Path(tempfile.mkdtemp(prefix="django-jobs-small-", dir="/tmp"))
    owner = _server_user()
    assert owner is not None
    options = f"size={SIZE},uid={owner.pw_uid},gid={owner.pw_gid},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def small(small_disk: Path, postgres_binaries: Binaries, server: Server, rows: object) -> Iterator[str]:
    """A server of its own, thrown away afterwards, whose database of jobs is on the small disk; the URL."""
    place = small_disk / "tablespace"
    place.mkdir(mode=0o700)
    shutil.chown(place, _server_user().pw_uid, _server_user().pw_gid)  # type: ignore[union-attr]
    with Cluster(binaries=postgres_binaries) as cluster:
        with psycopg.connect(cluster.url(), autocommit=True) as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
            admin.execute("CREATE DATABASE jobs TABLESPACE small TEMPLATE template0 ENCODING 'UTF8'")
        own = Server(vendor="postgresql", url=cluster.url("jobs"))
        own.activate()
        own.migrate()
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {WITNESS_TABLE} (n integer, pid integer)")
        yield own.url
        connections.close_all()
        server.activate()


def fill(url: str) -> int:
    """Write until nothing more fits; return how many rows did."""
    written = 0
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("CREATE TABLE filler (content text)")
        for size in (1_000_000, 100_000, 7_000, 100):
            insert = (
                "INSERT INTO filler SELECT string_agg(md5(n::text || random()::text), '') FROM generate_series(1, %s) n"
            )
            while True:
                try:
                    other.execute(insert, [size // 32])
                except psycopg.errors.DiskFull:
                    break
                written += 1
    return written


def make_room(url: str) -> None:
    """Remove what filled the disk."""
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("DROP TABLE filler")


def enqueue_until_refused() -> tuple[int, OperationalError]:
    """Enqueue until the disk is full; return how many jobs were acknowledged, and the error."""
    for n in range(1000, 100_000):
        try:
            work.enqueue(n=n)
        except OperationalError as error:
            return n - 1000, error
    raise AssertionError("the disk was never full")


def test_f18_full_disk_is_told_waited_for_and_outlived(
    small: str, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """A producer gets the database's own error; the same worker processes go on when there is room; nothing is lost."""
    worker = make_worker(database_url=small, threads=2).start().wait_ready(seconds=180)
    work.enqueue_many([{"n": n, "seconds": 0.2} for n in range(40)])
    wait_for(lambda: witness.lines("end"), what="the first end")
    before = worker.group()

    fill(small)
    acknowledged, error = enqueue_until_refused()
    assert isinstance(error.__cause__, psycopg.errors.DiskFull)
    assert error.__cause__.sqlstate == "53100"
    lines_before = len(worker.text.splitlines())
    pass_time(15)
    lines = len(worker.text.splitlines()) - lines_before
    stuck = dict(states())
    assert worker.group() == before, worker.text
    make_room(small)
    room = time.monotonic()
    connections.close_all()
    work.enqueue(n=500)
    first = wait_for(lambda: [line for line in witness.lines("end") if line["at"] > room], seconds=60, what="work")[0]
    wait_until_done(seconds=120)

    print(
        f"\nF18: {acknowledged} more jobs were taken before the disk was full; {stuck} while it was; {lines} log lines "
        f"in 15 s; work flowed {first['at'] - room:.1f} s after there was room; attempts {dict(outcomes())}"
    )
    assert worker.group() == before, worker.text
    done = [*range(40), *range(1000, 1000 + acknowledged), 500]
    assert states() == {"succeeded": len(done)}
    assert rows() == Counter(dict.fromkeys(done, 1))
    assert not Job.objects.filter(lost_count__gt=0).exists()
    assert all(gap >= 10 for times in outage_lines(worker.text).values() for gap in gaps(times)), worker.text
    assert lines <= 20, worker.text
    assert [item.invariant.name for item in verify(using="default").violated] == []
