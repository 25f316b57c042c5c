"""F12: clocks that are wrong, that jump, and that are put back in a night of autumn: the database's alone decides."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine
from django.db import connection, connections

from django_jobs import store
from django_jobs.models import Attempt, Job
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import WITNESS_TABLE, row, steady, work
from tests.acceptance.workers import Witness, pass_time, wait_for
from tests.clusters import Binaries, Cluster
from tests.databases import Server
from tests.scenes import held, known, new_job, request

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

Rows = Callable[[], Counter[int]]
LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"
NO_FAKETIME = "These tests need libfaketime: apt-get install faketime, or run without '-m long'."
HOUR = timedelta(hours=1)


def fake_clock(**variables: str) -> dict[str, str]:
    """Return the environment of a program whose wall clock is not the machine's."""
    found = sorted(Path("/").glob(LIBRARIES.lstrip("/")))
    if not found or shutil.which("faketime") is None:
        pytest.fail(NO_FAKETIME)
    return {"LD_PRELOAD": str(found[0]), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **variables}


@pytest.mark.parametrize("hours", [-1, 1])
def test_f12_lease_is_the_database_s_whatever_the_process_believes(hours: int) -> None:
    """A process an hour off claims, renews and is refused as any other: the stored times are the database's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        truth = cursor.fetchone()[0]
    with time_machine.travel(datetime.now(UTC) + hours * HOUR, tick=True):
        store.enqueue(new_job(), using="default")
        (claimed,) = store.claim(request(types=[known(lease=timedelta(seconds=60))]), using="default")
        job = Job.objects.get(pk=claimed.job_id)
        assert abs(job.lease_expires_at - truth - timedelta(seconds=60)) < timedelta(seconds=20)
        ends = truth + timedelta(minutes=10)
        renewed = store.renew(held(job), progress=1, total=None, lease=timedelta(seconds=90), ends_at=ends)
        assert abs(renewed - truth - timedelta(seconds=90)) < timedelta(seconds=20)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_f12_workers_an_hour_fast_and_an_hour_slow(make_worker: MakeWorker, witness: Witness, rows: Rows) -> None:
    """They share a database with one that is right: nobody judges anybody, and no lease is lost or too long."""
    offsets = {"fast": "+1h", "slow": "-1h"}
    workers = [
        make_worker(threads=2, env=fake_clock(FAKETIME=offset), arguments=("--name", name)).start()
        for name, offset in offsets.items()
    ]
    workers.append(make_worker(threads=2, arguments=("--name", "right")).start())
    for worker in workers:
        worker.wait_ready(seconds=180)
    before = [worker.group() for worker in workers]
    steady.enqueue_many([{"n": n, "seconds": 6.0} for n in range(6)])  # three leases long: they are renewed
    work.enqueue_many([{"n": n, "seconds": 0.1} for n in range(6, 30)])
    row.using(run_after=timedelta(seconds=3)).enqueue_many([{"n": n} for n in range(30, 40)])
    wait_until_done(seconds=120)

    assert rows() == Counter(dict.fromkeys(range(40), 1))
    assert outcomes() == {"succeeded": 40}, "one attempt each"
    names = set(Attempt.objects.values_list("worker_name", flat=True))
    assert names == {"fast", "slow", "right"}, "each of them ran something"
    due = Job.objects.filter(payload__arguments__contains='"n":3').values_list("pk", flat=True)
    for attempt in Attempt.objects.filter(job_id__in=list(due), job_type="acceptance.row"):
        assert attempt.started_at >= attempt.job.available_at
    assert [worker.group() for worker in workers] == before


class Clock:
    """The wall clock of a server, which a test moves while it runs."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        folder.chmod(0o755)
        self.jump("+0s")

    def jump(self, offset: str) -> None:
        """Be so far from the machine's clock from now on."""
        draft = self._file.with_suffix(".new")
        draft.write_text(f"{offset}\n")
        draft.chmod(0o644)
        draft.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """What the server sees."""
        return fake_clock(FAKETIME_TIMESTAMP_FILE=str(self._file), FAKETIME_NO_CACHE="1")


@pytest.fixture
def own_clock() -> Iterator[Clock]:
    """A clock that the server of this test follows."""
    with tempfile.TemporaryDirectory(prefix="django-jobs-clock-", dir="/tmp") as folder:
        yield Clock(Path(folder))


@pytest.fixture
def clocked(own_clock: Clock, postgres_binaries: Binaries, server: Server, rows: object) -> Iterator[Cluster]:
    """A PostgreSQL with a clock and a time zone of its own as the alias default."""
    settings = {"timezone": "Europe/Berlin"}
    with Cluster(binaries=postgres_binaries, environment=own_clock.environment, settings=settings) as cluster:
        own = Server(vendor="postgresql", url=cluster.url())
        own.activate()
        own.migrate()
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {WITNESS_TABLE} (n integer, pid integer)")
        yield cluster
        connections.close_all()
        server.activate()


def database_ahead() -> timedelta:
    """Return how far the database's clock is ahead of the machine's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: datetime = cursor.fetchone()[0]
    return found - datetime.now(UTC)


def jump(clock: Clock, offset: str, hours: int) -> None:
    """Move the server's clock and wait until it is seen."""
    clock.jump(offset)
    wait_for(lambda: abs(database_ahead() - hours * HOUR) < timedelta(seconds=30), what=f"a clock of {offset}")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("offset", "hours"), [("+3600s", 1), ("-3600s", -1)], ids=["forward", "back"])
def test_f12_clock_of_the_database_jumps_an_hour(
    clocked: Cluster, own_clock: Clock, make_worker: MakeWorker, witness: Witness, rows: Rows, offset: str, hours: int
) -> None:
    """Leases that seem over, or that last an hour longer, while handlers run: every row once, and work goes on."""
    workers = [make_worker(database_url=clocked.url(), threads=2).start().wait_ready(seconds=180) for _ in range(2)]
    work.enqueue_many([{"n": n, "seconds": 4.0} for n in range(4)])
    wait_for(lambda: len(witness.lines("start")) == 4, seconds=60, what="four starts")
    before = [worker.group() for worker in workers]

    jump(own_clock, offset, hours)
    row.enqueue_many([{"n": n} for n in range(10, 20)])
    first = time.monotonic()
    wait_for(lambda: witness.lines("end", n=19) or set(range(10, 20)) <= set(rows()), seconds=90, what="new work")
    took = time.monotonic() - first
    wait_until_done(seconds=120)

    print(f"\nF12: database {offset}: new jobs done {took:.1f} s after the jump; attempts {dict(outcomes())}")
    assert rows() == Counter(dict.fromkeys([*range(4), *range(10, 20)], 1)), "each row once, whoever held the lease"
    assert set(states()) == {"succeeded"}
    assert [worker.group() for worker in workers] == before


@pytest.mark.long
@pytest.mark.timeout(600)
def test_f12_clock_back_keeps_a_dead_worker_s_lease_for_the_jump_at_most(
    clocked: Cluster, own_clock: Clock, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """A worker dies right before the clock goes back: its job waits as long as the jump; the clock put right frees it."""
    victim = make_worker(database_url=clocked.url(), threads=1).start().wait_ready(seconds=180)
    job_id = steady.enqueue(n=1, seconds=6.0).id
    wait_for(lambda: witness.lines("start"), seconds=120, what="the start")
    victim.kill_group()
    jump(own_clock, "-3600s", -1)
    make_worker(database_url=clocked.url(), threads=1).start().wait_ready(seconds=180)
    pass_time(8)
    assert Job.objects.get(pk=job_id).state == "running", "nobody but the database's clock ends a lease"

    jump(own_clock, "+0s", 0)
    wait_until_done(seconds=90)

    assert rows() == {1: 1}
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "succeeded"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_f12_night_in_which_clocks_are_put_back(
    clocked: Cluster, own_clock: Clock, make_worker: MakeWorker, witness: Witness, rows: Rows
) -> None:
    """Server and worker live in Europe/Berlin, where 25 October 2026 has 02:30 twice: delays are as long as ever."""
    first_half_past_two = datetime(2026, 10, 25, 0, 59, 50, tzinfo=UTC)  # ten seconds before 03:00 becomes 02:00
    ahead = int((first_half_past_two - datetime.now(UTC)).total_seconds())
    own_clock.jump(f"{ahead:+d}s")
    env = {"TZ": "Europe/Berlin", **fake_clock(FAKETIME=f"{ahead:+d}s")}
    make_worker(database_url=clocked.url(), threads=2, env=env).start().wait_ready(seconds=180)
    wait_for(lambda: abs(database_ahead() - timedelta(seconds=ahead)) < timedelta(seconds=30), what="the night")
    asked = time.monotonic()
    for n in range(10):
        row.using(run_after=timedelta(seconds=2 * n)).enqueue(n=n)
    steady.enqueue(n=100, seconds=6.0)
    wait_until_done(seconds=120)

    starts = {line["n"]: line["at"] - asked for line in witness.lines("start") if line["n"] < 10}
    print(f"\nF12: due after 0, 2, … 18 s, started after {', '.join(f'{starts[n]:.1f}' for n in range(10))} s")
    assert all(2 * n - 0.5 <= starts[n] <= 2 * n + 15 for n in range(10)), starts
    assert outcomes() == {"succeeded": 11}
    assert rows() == Counter([*range(10), 100])
