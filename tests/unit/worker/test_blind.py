"""Sight and pulse: a blind worker is told once an episode, and telling never harms the supervisor."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from django_jobs import clock, telemetry
from django_jobs.worker.blind import Sight
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.heartbeat_file import read
from django_jobs.worker.link import ChildEnd, ParentEnd, Word
from django_jobs.worker.pulse import Pulse


@dataclass
class Clock:
    """A clock that a test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Heart:
    """What the pulse asks of the heart."""

    beat_at: float | None = None
    turned_at: float = 1000.0


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The machine's clock, in the test's hand."""
    moved = Clock()
    monkeypatch.setattr(clock, "boot_seconds", moved)
    return moved


def config(path: Path | None = None) -> WorkerConfig:
    """A worker's configuration."""
    return WorkerConfig(
        worker_id="w", name="mill", database="default", queues=(), threads=1, processes=1, grace=5, poll=1,
        heartbeat_file=str(path or ""),
    )  # fmt: skip


def child_of(line: ParentEnd) -> ChildEnd:
    """The child's end, with a descriptor of its own as in a process of its own."""
    end = ChildEnd(os.dup(line.descriptor))
    line.handed_over()
    return end


def test_each_episode_is_told_once(boot: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """One line and one event when the sight is lost, one of each when it is back, however often one looks."""
    caplog.set_level(logging.INFO, logger="django_jobs.worker")
    before = telemetry.counts.copy()
    sight = Sight(worker="mill", database="default", after=15.0)
    beat = boot.now

    for turn in range(200):
        boot.now = 1000.0 + turn
        if turn % 100 == 90:
            beat = boot.now
        sight.look(beat_at=beat, failing={})

    told = telemetry.counts - before
    assert (told["worker.blind"], told["worker.sees"]) == (2, 2)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert "mill is blind: no heartbeat was written for 15 s" in lines[0]
    assert "sees database 'default' again after" in lines[1]


def test_child_that_cannot_look_makes_its_worker_blind(boot: Clock) -> None:
    """Heartbeats alone are not sight: a child whose looks fail for long enough counts, a busy one does not."""
    sight = Sight(worker="mill", database="default", after=15.0)
    boot.now = 1014.0
    sight.look(beat_at=1014.0, failing={2: 1000.0})
    assert not sight.is_blind

    boot.now = 1016.0
    sight.look(beat_at=1014.0, failing={2: 1000.0})
    assert sight.why == "child 2 could not look for jobs for 16 s"

    sight.look(beat_at=1014.0, failing={})
    assert not sight.is_blind


def test_reports_of_a_child_reach_the_file(boot: Clock, tmp_path: Path) -> None:
    """Rounds that looked, were busy or failed are told apart, and states follow: starting, working, blind, stopping."""
    path, heart, line = tmp_path / "worker.json", Heart(), ParentEnd()
    child = child_of(line)
    pulse = Pulse(config(path))
    seen = []

    def turn(*, stopping: bool = False) -> None:
        heart.turned_at = boot.now
        line.listen()
        pulse.turn(heart, [(4, 77, line)], stopping=stopping)
        seen.append(read(path).vitals)

    turn()
    child.ready()
    child.turned(Word.LOOKED)
    heart.beat_at = boot.now
    turn()
    for boot.now in (1010.0, 1020.0):
        heart.beat_at = boot.now
        child.turned(Word.FAILED)
        turn()
    child.turned(Word.BUSY)
    turn()
    turn(stopping=True)
    pulse.end()

    assert [vitals.state for vitals in seen] == ["starting", "working", "working", "blind", "working", "stopping"]
    assert [vitals.children[0].ready for vitals in seen] == [False, *[True] * 5]
    assert seen[0].contact_ago is None
    assert seen[3].contact_ago == 0.0
    assert seen[3].why_blind == "child 4 could not look for jobs for 20 s"
    assert seen[3].children[0].turned_ago == 0.0
    assert not path.exists()
    line.close()


def test_equal_reports_are_sent_once_a_second(boot: Clock) -> None:
    """A child that goes round a thousand times a second does not fill the line; a change is told at once."""
    line = ParentEnd()
    child = child_of(line)

    for _ in range(1000):
        child.turned(Word.LOOKED)
    child.turned(Word.FAILED)
    boot.now += 1.0
    child.turned(Word.FAILED)

    assert line._line.recv(4096) == b"looked 0\nfailed 0\nfailed 0\n"
    line.close()


def test_supervisor_that_does_not_listen_holds_up_no_child(boot: Clock) -> None:
    """A full line drops reports instead of waiting."""
    line = ParentEnd()
    child = child_of(line)

    for _ in range(100_000):
        boot.now += 1.0
        child.turned(Word.LOOKED)

    line.listen()
    assert line.contact_at == boot.now
    line.close()


def test_file_that_cannot_be_written_ends_nothing(
    boot: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk or a removed directory is counted each time and logged once a minute; the supervisor goes on."""
    before = telemetry.counts["loop.failed"]
    folder = tmp_path / "gone"
    pulse = Pulse(config(folder / "worker.json"))
    for _ in range(60):
        boot.now += 1.0
        pulse.turn(Heart(beat_at=boot.now), [], stopping=False)

    assert telemetry.counts["loop.failed"] - before >= 20
    assert len([record for record in caplog.records if "could not be written" in record.getMessage()]) == 1
    folder.mkdir()
    boot.now += 5.0
    pulse.turn(Heart(beat_at=boot.now), [], stopping=False)
    assert (folder / "worker.json").exists()
