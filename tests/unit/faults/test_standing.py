"""Threads that stand at a fault point until somebody opens a door."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from django_jobs.faults.arming import Fault
from django_jobs.faults.kinds import hold_interpreter

# Waits for the door, shows a file for some time, and opens the door.
OPENER = 'while [ ! -p "$0" ]; do sleep 0.01; done; sleep 0.2; : > "$1"; sleep 0.3; rm "$1"; : > "$0"'


def test_waiting_thread_leaves_the_others_alone(tmp_path: Path) -> None:
    """Another thread of the same process goes on, and opens the door beside the marker."""
    fault = Fault(point="claim.before", kind="wait", marker=str(tmp_path / "fired"))
    standing = threading.Thread(target=fault.fire, args=("default",), daemon=True)
    standing.start()
    while not fault.door.exists():
        standing.join(0.01)
    assert standing.is_alive()

    with fault.door.open("wb"):
        standing.join(10)

    assert not standing.is_alive()


def test_held_interpreter_runs_no_other_thread(tmp_path: Path) -> None:
    """What is there only while the interpreter is held is seen by no thread of this process; another one opens the door."""
    door, held = tmp_path / "door", tmp_path / "held"
    seen, stop = threading.Event(), threading.Event()

    def look() -> None:
        while not stop.is_set():
            if held.exists():
                seen.set()

    other = threading.Thread(target=look, daemon=True)
    other.start()
    with subprocess.Popen(["sh", "-c", OPENER, str(door), str(held)]):
        hold_interpreter(door)
    stop.set()
    other.join(10)

    assert not seen.is_set()
