"""The heartbeat file: what is written, what a probe makes of it, and what is refused before a worker starts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from django_jobs import clock
from django_jobs.exceptions import HeartbeatFileError
from django_jobs.operate.alive import main, verdict_on
from django_jobs.operate.doctor_heartbeat import heartbeat_looks
from django_jobs.worker.heartbeat_file import ChildVitals, Vitals, check, read, remove, write

CHILD = ChildVitals(child=3, pid=77, ready=True, turned_ago=0.4)
WELL = Vitals(
    pid=os.getppid(),
    worker_id="w",
    name="mill",
    database="default",
    state="working",
    blind=False,
    why_blind="",
    blind_after=15.0,
    stuck_after=30.0,
    processes=1,
    contact_ago=0.5,
    beat_ago=2.0,
    heart_turned_ago=0.2,
    children=(CHILD,),
)
BLIND = replace(
    WELL, state="blind", blind=True, why_blind="no heartbeat was written for 40 s", contact_ago=40.0, beat_ago=40.0
)
STUCK = replace(CHILD, turned_ago=31.0)
LOADING = replace(CHILD, ready=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "worker.json"


def test_file_says_what_was_written(path: Path) -> None:
    """Everything comes back, with the age of the file, and no other file is left beside it."""
    write(path, WELL)

    told = read(path)

    assert told.vitals == WELL
    assert 0 <= told.age < 5
    assert [item.name for item in path.parent.iterdir()] == ["worker.json"]
    remove(path)
    remove(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("vitals", "alive", "ready", "text"),
    [
        (WELL, True, True, "worker mill (pid {pid}) is working; 1 of 1 child ready; last contact with database 'default'"),
        (BLIND, True, False, "is blind, because no heartbeat was written for 40 s; 1 of 1 child ready"),
        (replace(BLIND, state="stopping"), True, False, "is stopping and blind, because no heartbeat was written"),
        (replace(WELL, state="stopping"), True, False, "is stopping; "),
        (replace(WELL, state="starting", contact_ago=None, children=(), processes=2), True, False, "is starting; 0 of 2 "),
        (replace(WELL, children=(CHILD, STUCK)), False, False, "the loop of child 3 (pid 77) has stood still for 31"),
        (replace(BLIND, children=(STUCK,)), True, False, "is blind"),
        (replace(WELL, children=(replace(LOADING, turned_ago=290.0),)), True, True, "0 of 1 child ready"),
        (replace(WELL, children=(replace(LOADING, turned_ago=301.0),)), False, False, "has not loaded its code in 5 m"),
        (replace(WELL, heart_turned_ago=31.0), False, False, "the thread that writes heartbeats has stood still"),
        (replace(BLIND, heart_turned_ago=31.0), True, False, "is blind"),
    ],
)  # fmt: skip
def test_probe_judges_loops_and_never_the_database(
    path: Path, vitals: Vitals, alive: bool, ready: bool, text: str
) -> None:
    """A loop that stands still while the database answers is not alive; a worker that cannot see is, but not ready."""
    write(path, vitals)

    verdict = verdict_on(path)

    assert (verdict.alive, verdict.ready) == (alive, ready)
    assert text.format(pid=vitals.pid) in verdict.text


@pytest.mark.parametrize(
    ("later", "text"),
    [(31.0, "was last written 31"), (-1000.0, "before this machine started"), (29.0, "Alive")],
    ids=["stale", "rebooted", "young"],
)
def test_age_is_taken_from_the_machines_own_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch, later: float, text: str
) -> None:
    """A file that nobody writes any more is that of a worker whose supervisor stands still or is gone."""
    write(path, replace(WELL, blind_after=100.0))
    now = clock.boot_seconds()
    monkeypatch.setattr(clock, "boot_seconds", lambda: now + later)

    assert text in verdict_on(path, max_age=30.0).text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("", "no heartbeat file"),
        ("[]", "no heartbeat file"),
        ('{"boot_seconds": 1}', "no heartbeat file"),
        (json.dumps({"boot_seconds": 1, "version": 2, "written_at": "", "children": []}), "no heartbeat file"),
    ],
    ids=["missing", "empty", "list", "fields", "version"],
)
def test_what_is_no_heartbeat_file_is_not_alive(path: Path, text: str | None, said: str) -> None:
    """A probe gets an answer in words, whatever lies there."""
    if text is not None:
        path.write_text(text)

    verdict = verdict_on(path)

    assert (verdict.alive, verdict.ready) == (False, False)
    assert said in verdict.text


def test_places_that_cannot_hold_the_file_are_refused_early(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory, a missing directory, and one that takes no file: each is told before the worker starts."""
    with pytest.raises(HeartbeatFileError, match="is a directory"):
        check(path.parent)
    with pytest.raises(HeartbeatFileError, match="there is no directory"):
        check(path.parent / "nowhere" / "worker.json")
    with pytest.raises(HeartbeatFileError, match="File name too long"):
        check(path.parent / ("x" * 255))

    check(path)
    assert list(path.parent.iterdir()) == []


def test_file_of_another_live_worker_is_refused(path: Path) -> None:
    """Two workers with one file would hide one another; that of a dead one is taken over."""
    write(path, WELL)
    with pytest.raises(HeartbeatFileError, match=rf"belongs to worker mill \(pid {WELL.pid}\)"):
        check(path)

    write(path, replace(WELL, pid=2**22 + 1))
    check(path)
    write(path, replace(WELL, pid=os.getpid()))
    check(path)
    assert path.exists()


def test_doctor_tells_what_the_file_says(path: Path) -> None:
    """Working is only told; blind and dead ask for something to be done, and a blind worker not for a restart."""
    write(path, WELL)
    (well,) = heartbeat_looks(path)
    write(path, BLIND)
    (blind,) = heartbeat_looks(path)
    remove(path)
    (dead,) = heartbeat_looks(path)

    assert [finding.level for finding in (well, blind, dead)] == ["info", "warning", "warning"]
    assert "restart mends nothing" in blind.mend
    assert "start it again" in dead.mend


def test_probe_is_a_program_without_django_too(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The module run by itself has the same exit codes and says the same."""
    write(path, BLIND)

    codes = [main([str(path)]), main([str(path), "--ready"]), main([str(path), "--max-age", "0.000001"])]

    lines = capsys.readouterr().out.splitlines()
    assert codes == [0, 1, 1]
    assert lines[0] == lines[1] == verdict_on(path).text
    assert "was last written" in lines[2]
