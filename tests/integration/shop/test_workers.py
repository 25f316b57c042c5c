"""Processes that the demo starts, finds, freezes and never leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from testproject.demo import process_table
from testproject.demo.keeper import left_over
from testproject.demo.process_table import in_group, processes
from testproject.demo.waiting import Patience
from testproject.demo.workers import ROOT, Worker

WAITS = "import signal; signal.pause()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}])"


@pytest.fixture
def group() -> Iterator[subprocess.Popen[bytes]]:
    """A process with one child, in a group of their own."""
    process = subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True)
    try:
        Patience(seconds=20).until("both processes", lambda: len(in_group(process.pid)) == 2, seconds=20)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def test_own_process_is_listed_with_its_parent() -> None:
    """The process table knows this process, its parent, its group and its command."""
    (own,) = [process for process in processes() if process.pid == os.getpid()]

    assert (own.parent, own.group, own.state) == (os.getppid(), os.getpgrp(), "R")
    assert "python" in own.command


def test_line_of_ps_is_read_like_proc() -> None:
    """Where there is no /proc, a line of ps says the same."""
    read = process_table._from_line("  42     7    40 Ts   python -m django_jobs.worker.child {}")

    assert (read.pid, read.parent, read.group, read.is_stopped) == (42, 7, 40, True)
    assert read.command == "python -m django_jobs.worker.child {}"


def test_freeze_stops_every_process_of_the_group(group, tmp_path) -> None:
    """After the freeze the parent and its child both stand still; after waking both go on."""
    worker, patience = Worker("demo-test", group, tmp_path / "log"), Patience(seconds=20)

    count = worker.freeze(patience)
    frozen = [process.is_stopped for process in in_group(group.pid)]
    worker.wake()
    patience.until("them to go on", lambda: not any(p.is_stopped for p in in_group(group.pid)), seconds=10)

    assert (count, frozen) == (2, [True, True])


def test_keeper_remembers_what_has_not_ended() -> None:
    """A group that ended is not killed: its number may belong to somebody else by then."""
    assert left_over(["+10\n", "+11\n", "-10\n"]) == {11}


def test_keeper_kills_what_is_left_at_the_end_of_its_input(group) -> None:
    """When the demo is gone, the groups that it told the keeper of are ended as a whole, frozen or not."""
    os.killpg(group.pid, signal.SIGSTOP)

    subprocess.run(
        [sys.executable, "-m", "testproject.demo.keeper"],
        input=f"+{group.pid}\n".encode(),
        cwd=ROOT,
        timeout=20,
        check=True,
    )

    assert group.wait(10) == -signal.SIGKILL
    Patience(seconds=10).until("its child to end too", lambda: not in_group(group.pid), seconds=10)
