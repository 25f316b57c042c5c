"""Who is asked for stacks: every child that has taken up its work, also one whose word for that was not read yet."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.link import ChildEnd, ParentEnd
from django_jobs.worker.supervisor import Supervisor

CONFIG = WorkerConfig(
    worker_id="01900000-0000-7000-8000-000000000000",
    name="w",
    database="default",
    queues=(),
    threads=1,
    processes=1,
    grace=1.0,
    poll=1.0,
)


class Process:
    """A child that runs, and notes what it is sent."""

    pid = 4711

    def __init__(self) -> None:
        self.sent: list[int] = []

    def poll(self) -> None:
        """Run on."""

    def send_signal(self, number: int) -> None:
        """Note the signal."""
        self.sent.append(number)


@pytest.fixture
def heart() -> Any:
    """A heart that has registered its worker."""
    registered = threading.Event()
    registered.set()
    return SimpleNamespace(is_alive=True, asked_to_drain=False, registered=registered, beat_at=None, turned_at=0.0)


@pytest.fixture
def line() -> Iterator[ParentEnd]:
    """The line to a child."""
    made = ParentEnd()
    yield made
    made.close()


def _supervisor(line: ParentEnd) -> tuple[Supervisor, Process]:
    supervisor, process = Supervisor(CONFIG, host="host"), Process()
    slot = supervisor.slots[0]
    slot.process, slot.line, slot.child = process, line, 1  # type: ignore[assignment]
    return supervisor, process


def test_child_that_is_ready_is_asked_though_nobody_had_read_its_word(heart: Any, line: ParentEnd) -> None:
    """READY lies in the line when QUIT comes: it is read first, and the child is asked once."""
    supervisor, process = _supervisor(line)
    child = ChildEnd(os.dup(line.descriptor))
    child.ready()

    supervisor._have_stacks_shown()
    supervisor._turn(heart)
    supervisor._turn(heart)

    assert process.sent == [signal.SIGQUIT]


def test_child_that_still_loads_is_left_alone(heart: Any, line: ParentEnd) -> None:
    """A program that has not set up what QUIT means would end by it."""
    supervisor, process = _supervisor(line)

    supervisor._have_stacks_shown()
    supervisor._turn(heart)

    assert process.sent == []
