"""What a worker answers over HTTP while its children work, die, and while its database stands still."""

from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import MakeWorker
from tests.acceptance.handlers import row, work
from tests.acceptance.workers import Witness, WorkerProcess, wait_for
from tests.clusters import Cluster

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@pytest.fixture
def ask(free_port: int) -> Callable[[str], tuple[int, str]]:
    """Ask the worker; returns status and text, 0 while nobody answers."""

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{free_port}{path}", timeout=15) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    return get


Ask = Callable[[str], tuple[int, str]]


def samples(ask: Ask) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield every sample of the worker's metrics."""
    status, text = ask("/metrics")
    assert status == 200, text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def wait_ready(ask: Ask) -> str:
    """Wait until the worker says that it is ready, and return its words."""
    told = []

    def ready() -> bool:
        told.append(ask("/readyz"))
        return told[-1][0] == 200

    try:
        wait_for(ready, seconds=60, what="readiness")
    except AssertionError as error:
        raise AssertionError(f"{error}; it said {told[-1]}") from None
    return told[-1][1]


def total(ask: Ask, name: str, **labels: str) -> float:
    """Return the sum of the series of a metric that have these labels."""
    return sum(
        value for found, of, value in samples(ask) if found == f"django_jobs_{name}" and labels.items() <= of.items()
    )


def test_r73_counters_of_children_survive_them_and_their_gauges_do_not(
    make_worker: MakeWorker, witness: Witness, free_port: int, ask: Ask
) -> None:
    """R73: what a killed child counted is still told, what it was doing is not; its loss is counted by the supervisor."""
    for n in range(5):
        row.enqueue(n=n)
    worker = make_worker(threads=2, processes=2, arguments=("--metrics-port", str(free_port))).start()
    done = {"job_type": "acceptance.row", "outcome": "succeeded"}
    wait_ready(ask)
    wait_for(lambda: total(ask, "attempts_total", **done) == 5, what="five successes")
    work.enqueue(n=77, seconds=60)
    wait_for(witness.busy, what="a handler that runs")
    wait_for(lambda: total(ask, "worker_busy_slots") == 1, what="one busy slot")
    worker.kill_child(witness.busy()[0]["pid"])
    wait_for(lambda: total(ask, "lost_attempts_total", cause="exit") == 1, what="the loss")
    row.enqueue(n=6)
    wait_for(lambda: total(ask, "attempts_total", **done) == 6, what="the sixth success, told with those before")

    assert total(ask, "attempts_total", job_type="acceptance.work", outcome="lease_lost") == 1
    assert total(ask, "attempt_duration_seconds_count", **done) == 6
    assert total(ask, "attempt_duration_seconds_bucket", le="+Inf", **done) == 6
    assert total(ask, "queue_delay_seconds_count", job_type="acceptance.row", priority="normal", queue="default") == 6
    wait_for(lambda: len(witness.lines("start", n=77)) == 2, what="the lost job, alone in a child")
    wait_for(lambda: total(ask, "worker_slots") == 4, what="the new child")
    assert total(ask, "worker_busy_slots") == 1
    wait_for(lambda: total(ask, "workers", state="live") == 1, what="a look at the database that is younger")
    wait_for(lambda: total(ask, "backlog_jobs", state="queued", job_type="acceptance.row") == 0, what="an empty queue")
    assert total(ask, "exporter_up") == 1


def test_worker_leaves_no_file(make_worker: MakeWorker, free_port: int, ask: Ask, tmp_path: Path) -> None:
    """The private directory goes with the worker, and a shared one of the project is not used."""
    shared, private = tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    private.mkdir()
    worker = make_worker(
        env={"PROMETHEUS_MULTIPROC_DIR": str(shared), "TMPDIR": str(private)},
        arguments=("--metrics-port", str(free_port)),
    ).start()
    row.enqueue(n=1)
    wait_for(lambda: ask("/readyz")[0] == 200 and total(ask, "attempts_total") == 1, what="a success")
    inside = [path.name for path in private.rglob("*.db")]
    worker.term()

    assert worker.wait(seconds=30) == 0
    assert any(name.startswith("counter_") for name in inside)
    assert list(private.iterdir()) == []
    assert not any(f"_{pid}.db" in path.name for pid in worker.child_pids for path in shared.iterdir())


def test_health_while_working_and_while_stopping(
    make_worker: MakeWorker, witness: Witness, free_port: int, ask: Ask
) -> None:
    """A worker is ready when its child is, alive under a long handler, and not ready once it drains."""
    worker = make_worker(arguments=("--metrics-port", str(free_port))).start()
    ready = wait_ready(ask)
    work.enqueue(n=1, seconds=4)
    wait_for(witness.busy, what="a handler that runs")
    alive = ask("/livez")
    worker.term()
    draining = wait_for(lambda: (answer := ask("/readyz"))[0] == 503 and answer, what="a worker that drains")

    assert (alive[0], ready) == (200, "Ready: it takes jobs.\n")
    assert draining[1] == "Not ready: it is stopping.\n"
    assert ask("/livez")[0] == 200
    assert ask("/other")[0] == 404
    assert worker.wait(seconds=30) == 0


def test_port_in_use_is_told_before_the_start(make_worker: MakeWorker, free_port: int) -> None:
    """The worker ends with the exit code of wrong usage, and names the place."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port))
        other.listen()
        worker = make_worker(arguments=("--metrics-port", str(free_port))).start()

        assert worker.wait(seconds=60) == 2
    assert f"Metrics cannot be served on 127.0.0.1:{free_port}" in worker.text


@pytest.mark.postgres
def test_frozen_database_fails_readiness_alone(
    own_server: Cluster, make_worker: MakeWorker, free_port: int, ask: Ask
) -> None:
    """A PostgreSQL that stands still: alive, not ready within seconds, counters still told; and ready when it is back."""
    worker: WorkerProcess = make_worker(
        database_url=own_server.url(), arguments=("--metrics-port", str(free_port))
    ).start()
    wait_ready(ask)
    wait_for(lambda: total(ask, "worker_claims_total") > 0, what="a claim")
    own_server.pause()
    try:
        unready = wait_for(lambda: (answer := ask("/readyz"))[0] == 503 and answer, what="unreadiness")
        alive = ask("/livez")
        counted = total(ask, "worker_claims_total")
    finally:
        own_server.resume()
    wait_ready(ask)

    assert "has not answered" in unready[1] or "does not answer" in unready[1] or "blind" in unready[1]
    assert alive[0] == 200
    assert counted > 0
    assert worker.is_running()


def test_frozen_supervisor_cannot_call_itself_alive(make_worker: MakeWorker, free_port: int, ask: Ask) -> None:
    """A stopped process answers no probe at all, which a probe takes for dead."""
    worker = make_worker(arguments=("--metrics-port", str(free_port))).start()
    wait_for(lambda: ask("/livez")[0] == 200, seconds=60, what="liveness")
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        with socket.create_connection(("127.0.0.1", free_port), timeout=1) as line:
            line.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            with pytest.raises(TimeoutError):
                line.recv(100)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
