"""A worker that cannot see its database: it says so, nobody restarts it for that, and it goes on when it sees again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connections

from django_jobs.models import Attempt, Job, Worker
from django_jobs.operate.alive import verdict_on
from tests.acceptance.conftest import MakeWorker, outcomes, states, wait_until_done
from tests.acceptance.handlers import patient, work
from tests.acceptance.workers import QUICK, ROOT, Witness, WorkerProcess, pass_time, wait_for
from tests.clusters import Cluster

pytestmark = pytest.mark.django_db(transaction=True)

Rows = Callable[[], Counter[int]]
LINE = re.compile(r"^\d{4}-\d\d-\d\d \S+ (WARNING|ERROR|INFO) (\d+) django_jobs", re.MULTILINE)
NOWHERE = "postgres://nobody:nothing@127.0.0.1:9/nothing"
SOON = {**QUICK, "JOBS_BLIND_AFTER": "2", "JOBS_STUCK_AFTER": "3"}


def alive(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ask the probe as an orchestrator does: a program of its own, which could reach no database."""
    return subprocess.run(
        [sys.executable, "manage.py", "jobs", "alive", "--heartbeat-file", str(path), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "DATABASE_URL": NOWHERE, "JOBS_IMPORTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def told(path: Path) -> dict[str, Any]:
    """Read the heartbeat file as any program would."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def wait_for_state(path: Path, state: str, *, seconds: float = 30) -> None:
    """Wait until the worker tells that it is in this state."""
    wait_for(lambda: told(path).get("state") == state, seconds=seconds, what=f"{state}, not {told(path)}")


def started(make_worker: MakeWorker, path: Path, **options: Any) -> WorkerProcess:
    """Start a worker that keeps a heartbeat file, and wait until it works."""
    arguments = ("--heartbeat-file", str(path), *options.pop("arguments", ()))
    worker: WorkerProcess = make_worker(arguments=arguments, **{"times": SOON, **options}).start().wait_ready()
    wait_for_state(path, "working")
    return worker


@pytest.fixture
def heartbeat(tmp_path: Path) -> Path:
    """Where the worker under test keeps its file."""
    return tmp_path / "heartbeat.json"


def stop_and_start(
    own: Cluster, make_worker: MakeWorker, witness: Witness, heartbeat: Path, *, seconds: float, times: dict[str, str]
) -> None:
    """Stop the server under a working worker and start it again; assert all that must hold meanwhile and after."""
    worker = started(make_worker, heartbeat, database_url=own.url(), threads=2, times=times)
    work.enqueue_many([{"n": n} for n in range(10)])
    wait_until_done(seconds=30)
    before, lines_before = worker.group(), len(LINE.findall(worker.text))

    own.stop(mode="fast")
    stopped = time.monotonic()
    wait_for_state(heartbeat, "blind")
    blind_after = time.monotonic() - stopped
    live, verdict = alive(heartbeat), verdict_on(heartbeat)
    pass_time(max(0.0, seconds - (time.monotonic() - stopped)))
    own.start()
    back, lasted = time.monotonic(), time.monotonic() - stopped
    connections.close_all()
    work.enqueue_many([{"n": 100 + n} for n in range(10)])
    first = wait_for(lambda: [line for line in witness.lines("end") if line["n"] >= 100], what="work")[0]
    wait_for_state(heartbeat, "working")
    wait_until_done(seconds=30)

    lines = len(LINE.findall(worker.text)) - lines_before
    print(
        f"\ndatabase away for {lasted:.1f} s: blind after {blind_after:.1f} s, {lines} log lines, work flowed "
        f"{first['at'] - back:.2f} s after the return; probe: {live.stdout.strip()}"
    )
    assert live.returncode == 0
    assert "is blind, because" in live.stdout
    assert not verdict.ready
    assert verdict_on(heartbeat).ready
    assert first["at"] - back <= 5
    assert worker.group() == before, "nobody was restarted"
    assert worker.text.count("is blind") == 1
    assert states() == {"succeeded": 20}
    # Two processes and the ear for notifications tell of the beginning, one of blindness; then at most one in ten seconds.
    assert lines <= 4 + lasted / 10, worker.text


@pytest.mark.postgres
def test_r22_stopped_database_makes_a_worker_blind_not_dead(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, heartbeat: Path
) -> None:
    """While the server is away the worker is alive and not ready, in few lines; then work flows within 5 s."""
    stop_and_start(own_server, make_worker, witness, heartbeat, seconds=6, times=SOON)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_f09_database_stopped_for_a_minute_r22(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, heartbeat: Path
) -> None:
    """The same for 60 s and at default times."""
    stop_and_start(own_server, make_worker, witness, heartbeat, seconds=60, times={})


@pytest.mark.postgres
def test_r22_child_whose_loop_stands_still_fails_the_probe(make_worker: MakeWorker, heartbeat: Path) -> None:
    """A frozen child of a worker that sees its database is named by the probe, and alive again when it is woken."""
    worker = started(make_worker, heartbeat, threads=1, processes=2)
    frozen = worker.child_pids[0]
    assert verdict_on(heartbeat).alive

    os.kill(frozen, signal.SIGSTOP)
    wait_for(lambda: f"(pid {frozen}) has stood still for" in verdict_on(heartbeat).text, what="a loop that stands")
    verdict = subprocess.run(
        [sys.executable, "-m", "django_jobs.operate.alive", str(heartbeat)], cwd=ROOT, capture_output=True, check=False
    )
    os.kill(frozen, signal.SIGCONT)
    wait_for(lambda: verdict_on(heartbeat).ready, what="turning loops")

    assert verdict.returncode == 1
    worker.term()
    assert worker.wait(seconds=30) == 0
    assert not heartbeat.exists(), "a worker that ended in good order leaves no file"
    assert not verdict_on(heartbeat).alive


@pytest.mark.sqlite
def test_frozen_or_killed_supervisor_is_seen_by_the_age_of_its_file(make_worker: MakeWorker, heartbeat: Path) -> None:
    """Nobody writes for a supervisor that stands still or is gone."""
    worker = started(make_worker, heartbeat, threads=1)
    worker.freeze()

    wait_for(lambda: not verdict_on(heartbeat, max_age=1.0).alive, what="a stale file")

    assert "was last written" in verdict_on(heartbeat, max_age=1.0).text
    worker.kill_group()
    assert heartbeat.exists()


@pytest.mark.sqlite
def test_worker_with_no_place_for_its_file_does_not_start(make_worker: MakeWorker, tmp_path: Path) -> None:
    """The path is checked before anything else happens: exit 2, and one line says why."""
    worker = make_worker(arguments=("--heartbeat-file", str(tmp_path / "no" / "where.json"))).start()

    assert worker.wait(seconds=30) == 2
    assert "there is no directory" in worker.text
    assert "Traceback" not in worker.text
    assert not Worker.objects.exists()


@contextmanager
def locked_job_table(url: str) -> Iterator[None]:
    """Hold ACCESS EXCLUSIVE on the job table, as a migration that hangs does."""
    with psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE django_jobs_job IN ACCESS EXCLUSIVE MODE")
        yield
        holder.rollback()


def waiting_backends(url: str) -> int:
    """Return how many connections wait for a lock."""
    with psycopg.connect(url) as looking:
        found = looking.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_r23_locked_job_table_stops_no_loop(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, heartbeat: Path
) -> None:
    """60 s of ACCESS EXCLUSIVE: calls end, loops turn, beats go on, no backends pile up; then work flows within 5 s."""
    worker = started(make_worker, heartbeat, database_url=own_server.url(), threads=2, times={})
    before = worker.group()
    work.enqueue_many([{"n": n} for n in range(10)])
    wait_until_done(seconds=30)
    connections.close_all()
    longest, most, beats = 0.0, 0, []

    with locked_job_table(own_server.url()):
        wait_for_state(heartbeat, "blind")
        until = time.monotonic() + 45
        while time.monotonic() < until:
            vitals = told(heartbeat)
            longest = max(longest, *(child["turned_ago"] for child in vitals["children"]))
            beats.append(vitals["beat_ago"])
            most = max(most, waiting_backends(own_server.url()))
            pass_time(0.5)
        live = alive(heartbeat)
    free = time.monotonic()
    work.enqueue_many([{"n": 100 + n} for n in range(10)])
    first = wait_for(lambda: [line for line in witness.lines("end") if line["n"] >= 100], what="work")[0]
    wait_until_done(seconds=30)

    print(
        f"\nlocked for a minute: longest round {longest:.1f} s, oldest beat {max(beats):.1f} s, at most {most} backends "
        f"waiting; work flowed {first['at'] - free:.2f} s after the lock; probe: {live.stdout.strip()}"
    )
    assert live.returncode == 0
    assert longest <= 20
    assert max(beats) <= 20
    assert most <= 3
    assert first["at"] - free <= 5
    assert worker.group() == before
    assert not Job.objects.filter(lost_count__gt=0).exists()
    assert outcomes() == {"succeeded": 20}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
@pytest.mark.parametrize("fault", ["locked", "frozen"])
def test_r23_worker_stops_within_its_grace_whatever_hangs(
    own_server: Cluster, make_worker: MakeWorker, heartbeat: Path, fault: str
) -> None:
    """TERM while the job table is locked, or while the server stands still: an idle worker ends within its grace."""
    worker = started(make_worker, heartbeat, database_url=own_server.url(), threads=2, times={})

    def stopped() -> float:
        pass_time(3)  # a look for jobs hangs by now
        began = time.monotonic()
        worker.term()
        worker.wait(seconds=60)
        return time.monotonic() - began

    if fault == "locked":
        with locked_job_table(own_server.url()):
            took = stopped()
    else:
        own_server.pause()
        try:
            took = stopped()
        finally:
            own_server.resume()

    print(f"\n{fault}: stopped after {took:.1f} s")
    assert took <= 30, "the default grace"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_f08_frozen_backend_is_left_for_another_r23(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, heartbeat: Path
) -> None:
    """Each server process of the worker frozen for good, one after the other: loops leave it and go on."""
    worker = started(make_worker, heartbeat, database_url=own_server.url(), threads=1, times={})
    with psycopg.connect(own_server.url(), autocommit=True) as looking:
        query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        connections.close_all()
        backends = [pid for (pid,) in looking.execute(query)]
    before, frozen = worker.group(), []
    assert len(backends) >= 2, "the supervisor's and the child's"
    try:
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
            frozen.append(pid)
        froze = time.monotonic()
        work.enqueue_many([{"n": n} for n in range(5)])
        first = wait_for(lambda: witness.lines("end"), seconds=60, what=f"work: {worker.text}")[0]
        wait_for(lambda: told(heartbeat)["beat_ago"] < 5 and told(heartbeat)["state"] == "working", seconds=60)
        seen = time.monotonic() - froze
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    wait_until_done(seconds=120)

    print(f"\n{len(frozen)} backends frozen: work after {first['at'] - froze:.1f} s, all loops well after {seen:.1f} s")
    assert worker.group() == before
    assert states() == {"succeeded": 5}
    assert set(Attempt.objects.values_list("outcome", flat=True)) <= {"succeeded", "released"}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_f08_database_paused_for_a_minute_costs_nobody_a_job_r23(
    own_server: Cluster, make_worker: MakeWorker, witness: Witness, rows: Rows, tmp_path: Path
) -> None:
    """Every server process frozen for 60 s under 3 workers with running jobs: nobody judges, all finish once."""
    paths = [tmp_path / f"heartbeat{number}.json" for number in range(3)]
    workers = [
        started(make_worker, path, database_url=own_server.url(), threads=3, processes=2, times={}) for path in paths
    ]
    wait_for(lambda: Worker.objects.count() == 3, what="three workers")
    pass_time(12)  # each has beaten often enough to judge others
    patient.enqueue_many([{"n": n, "seconds": 20 + 8 * (n % 10)} for n in range(14)])  # 20 … 92 s
    wait_for(lambda: len(witness.lines("start")) == 14, what="14 running jobs")
    before = [worker.group() for worker in workers]
    pass_time(3)

    own_server.pause()
    paused = time.monotonic()
    for path in paths:
        wait_for_state(path, "blind", seconds=40)
    all_blind = time.monotonic() - paused
    verdicts = [alive(path) for path in paths]
    longest = 0.0
    while time.monotonic() - paused < 60:
        longest = max(longest, *(child["turned_ago"] for path in paths for child in told(path)["children"]))
        pass_time(0.5)
    own_server.resume()
    back = time.monotonic()
    connections.close_all()
    work.enqueue_many([{"n": 100 + n} for n in range(10)])
    first = wait_for(lambda: [line for line in witness.lines("end") if line["n"] >= 100], what="work")[0]
    wait_for(lambda: all(told(path)["beat_ago"] < time.monotonic() - back for path in paths), what="beats")
    beats = time.monotonic() - back
    wait_until_done(seconds=180)

    lost = Attempt.objects.filter(outcome="lost")
    print(
        f"\npaused for {back - paused:.0f} s: all blind after {all_blind:.1f} s; longest round {longest:.1f} s; work "
        f"flowed {first['at'] - back:.2f} s after the return, every worker had beaten after {beats:.2f} s; "
        f"outcomes {dict(outcomes())}, lost {list(lost.values_list('loss_cause', flat=True))}"
    )
    print("\n".join(verdict.stdout.strip() for verdict in verdicts))
    assert [verdict.returncode for verdict in verdicts] == [0, 0, 0]
    assert first["at"] - back <= 5
    assert beats <= 9
    assert not lost.exists(), "nobody revoked valid work"
    assert not Job.objects.filter(lost_count__gt=0).exists()
    assert set(Job.objects.values_list("isolation", flat=True)) == {""}, "no job became a suspect"
    assert set(Attempt.objects.values_list("alone", flat=True)) == {""}
    assert [worker.group() for worker in workers] == before
    assert states() == {"succeeded": 24}
    assert rows() == Counter(dict.fromkeys([*range(14), *range(100, 110)], 1))
