"""When a child has served long enough."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from django_jobs import clock
from django_jobs.worker import wear
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.wear import MIB, Wear, memory

CONFIG = WorkerConfig(
    worker_id="", name="test", database="default", queues=(), threads=1, processes=1, grace=5.0, poll=1.0
)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the boot clock; change the one element to move it."""
    now = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: now[0])
    return now


def worn(**limits: float) -> Wear:
    """Return the wear of a child with these limits."""
    return Wear(dataclasses.replace(CONFIG, **limits))  # type: ignore[arg-type]


def test_child_without_limits_serves_for_ever(seconds: list[float]) -> None:
    """Nothing is counted against it."""
    one = worn()
    for _ in range(10_000):
        one.note_job()
    seconds[0] += 1e9
    assert one.reason() == ""


def test_jobs_are_counted_and_spread() -> None:
    """A child ends at its number of jobs or up to a tenth before, and not all at the same one."""
    ends = set()
    for _ in range(50):
        one, many = worn(recycle_jobs=100), 0
        while not one.reason():
            one.note_job()
            many += 1
        ends.add(many)
        assert one.reason() == f"it has started {many} jobs"
    assert min(ends) >= 90
    assert max(ends) <= 100
    assert len(ends) > 1
    one = worn(recycle_jobs=1)
    one.note_job()
    assert one.reason()


def test_age_is_measured_on_the_boot_clock(seconds: list[float]) -> None:
    """Before nine tenths of it nothing happens, after all of it the child is replaced."""
    one = worn(recycle_age=100.0)
    seconds[0] += 89
    assert one.reason() == ""
    seconds[0] += 11
    assert one.reason() == "it has served for 100 s"


def test_memory_is_looked_at_once_a_second(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process uses now counts, not what it once used."""
    used = [90 * MIB]
    monkeypatch.setattr(wear, "memory", lambda: used[0])
    one = worn(recycle_memory=100)
    seconds[0] += 1
    assert one.reason() == ""
    used[0] = 120 * MIB
    assert one.reason() == ""
    seconds[0] += 1
    assert one.reason() == "it uses 120 MiB of memory"


def test_memory_of_this_process_is_known_on_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of memory is seen; a system that does not tell says so once and recycles nothing."""
    before = memory()
    block = bytearray(64 * MIB)
    block[::4096] = b"x" * len(block[::4096])
    after = memory()
    assert before is not None
    assert after is not None
    assert after - before > 32 * MIB
    monkeypatch.setattr(wear, "_STATUS", tmp_path / "nothing")
    assert memory() is None
    (tmp_path / "nothing").write_text("Name: python\n")
    assert memory() is None


def test_system_that_does_not_tell_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seconds: list[float]
) -> None:
    """The option that has no effect is warned of when the child starts."""
    monkeypatch.setattr(wear, "memory", lambda: None)
    one = worn(recycle_memory=1)
    seconds[0] += 5
    assert one.reason() == ""
    assert "--recycle-memory has no effect" in caplog.text
