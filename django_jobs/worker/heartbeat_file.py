"""The heartbeat file: what a worker tells about itself without any database, for probes on the same machine.

The supervisor's own loop writes it, so its age tells whether that loop goes round. Ages inside the file are those at
the time of writing. Times are counted on the machine's clock since its start, which nobody can set.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django_jobs import clock
from django_jobs.exceptions import HeartbeatFileError

VERSION = 1
WRITE_EVERY = 2.0  # seconds
IN_USE = 10.0  # seconds: a younger file belongs to a worker that lives


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildVitals:
    """One child process: its number and process id, whether it loaded its code, and when its loop went round last."""

    child: int
    pid: int
    ready: bool
    turned_ago: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What one worker tells. All ages are in seconds; ``state`` is starting, working, blind or stopping.

    ``contact_ago`` is the time since a heartbeat or a look for jobs succeeded, ``beat_ago`` since a heartbeat did (both
    null: never yet), ``heart_turned_ago`` since the thread that beats went round. ``blind`` stays true while a blind
    worker stops. ``processes`` is how many children the worker wants.
    """

    pid: int
    worker_id: str
    name: str
    database: str
    state: str
    blind: bool
    why_blind: str
    blind_after: float
    stuck_after: float
    processes: int
    contact_ago: float | None
    beat_ago: float | None
    heart_turned_ago: float
    children: tuple[ChildVitals, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a heartbeat file says, and how old that is; an age below zero means: written before the machine's start."""

    vitals: Vitals
    age: float


def check(path: Path) -> None:
    """Find out at once whether a worker can keep its heartbeat file there.

    Raises:
        HeartbeatFileError: It cannot, or another live worker keeps its own there.
    """
    if path.is_dir():
        msg = f"The heartbeat file {path} is a directory; give the path of a file."
        raise HeartbeatFileError(msg)
    if not path.parent.is_dir():
        msg = f"The heartbeat file {path} cannot be written: there is no directory {path.parent}."
        raise HeartbeatFileError(msg)
    other = _other_worker(path)
    if other is not None:
        msg = (
            f"The heartbeat file {path} belongs to worker {other.name} (pid {other.pid}), which is alive; give each "
            "worker a file of its own."
        )
        raise HeartbeatFileError(msg)
    trial = _beside(path)
    try:
        trial.write_text("")
        trial.unlink()
    except OSError as error:
        msg = f"The heartbeat file {path} cannot be written: {error.strerror or error}."
        raise HeartbeatFileError(msg) from error


def _other_worker(path: Path) -> Vitals | None:
    with contextlib.suppress(HeartbeatFileError):
        found = read(path)
        if 0 <= found.age < IN_USE and found.vitals.pid != os.getpid() and _lives(found.vitals.pid):
            return found.vitals
    return None


def write(path: Path, vitals: Vitals) -> None:
    """Replace the file as a whole: a reader sees the old text or the new one.

    Raises:
        OSError: It could not be written.
    """
    text = {"version": VERSION, "boot_seconds": clock.boot_seconds(), "written_at": clock.now().isoformat()}
    temporary = _beside(path)
    try:
        temporary.write_text(json.dumps({**text, **asdict(vitals)}, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def remove(path: Path) -> None:
    """Remove the file of a worker that has ended; harmless when it is gone."""
    with contextlib.suppress(OSError):
        path.unlink()


def read(path: Path) -> Told:
    """Read a heartbeat file.

    Raises:
        HeartbeatFileError: There is none, or it is none.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        age = clock.boot_seconds() - values.pop("boot_seconds")
        return Told(vitals=_vitals(values), age=age)
    except OSError as error:
        msg = f"The heartbeat file {path} cannot be read: {error.strerror or error}."
        raise HeartbeatFileError(msg) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is no heartbeat file of a worker of this version."
        raise HeartbeatFileError(msg) from error


def _vitals(values: Mapping[str, Any]) -> Vitals:
    given = dict(values)
    if given.pop("version") != VERSION:
        raise ValueError
    given.pop("written_at")
    children = tuple(ChildVitals(**child) for child in given.pop("children"))
    return Vitals(**given, children=children)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
