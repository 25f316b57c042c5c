"""Workers as processes: started, watched, killed, frozen and stopped from outside; nothing outlives the block."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1
# Short times for the normal run: a lost worker is judged after seconds, not after half a minute.
QUICK = {
    "JOBS_HEARTBEAT": "1",
    "JOBS_SILENT_AFTER": "3",
    "JOBS_EXPIRED_PATIENCE": "1",
    "JOBS_REAPER_TICK": "1",
    "JOBS_GRACE": "5",
    "JOBS_MAX_CALL": "3",
}
DEFAULTS: dict[str, str] = {}


class NotInTimeError(AssertionError):
    """Something did not become true before its deadline."""


def wait_for(look: Callable[[], T], *, seconds: float = 30, what: str = "") -> T:
    """Poll until ``look`` returns something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what or look} not within {seconds} s: {found!r}")
        time.sleep(0.02)
    return found


def pass_time(seconds: float) -> None:
    """Let time pass where the passing itself is the condition: a random moment, the length of an outage."""
    threading.Event().wait(seconds)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass(slots=True, kw_only=True)
class Witness:
    """The file in which handlers tell what they do."""

    path: Path

    @classmethod
    def at(cls, path: str) -> Witness:
        """Read the file with this path."""
        return cls(path=Path(path))

    def lines(self, what: str = "", **match: Any) -> list[dict[str, Any]]:
        """Return what was told, oldest first."""
        if not self.path.exists():
            return []
        told = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [
            line
            for line in told
            if what in {"", line["what"]} and all(line.get(name) == value for name, value in match.items())
        ]

    def busy(self) -> list[dict[str, Any]]:
        """Return starts that were not followed by an end in the same process."""
        ended = {(line["n"], line["pid"], line["job"]) for line in self.lines("end")}
        return [line for line in self.lines("start") if (line["n"], line["pid"], line["job"]) not in ended]


@dataclass(slots=True, kw_only=True)
class WorkerProcess:
    """One ``manage.py runworker`` in a session of its own; usable as a context manager."""

    database_url: str
    witness: Witness
    log: Path
    bytecode: Path
    threads: int = 4
    processes: int = 1
    times: dict[str, str] = field(default_factory=lambda: dict(QUICK))
    env: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> WorkerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_group()

    def start(self) -> WorkerProcess:
        """Start, without waiting for anything."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JOBS_")}
        # A worker in use finds its code compiled; where the tests must not write it, it would be compiled at each start.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(self.bytecode)
        environment |= {
            "DATABASE_URL": self.database_url,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "JOBS_IMPORTS": "tests.acceptance.handlers",
            "JOBS_WITNESS": str(self.witness.path),
            **self.times,
            **self.env,
        }
        command = [sys.executable, "manage.py", "runworker", "--threads", str(self.threads)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, "--processes", str(self.processes), *self.arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The supervisor."""
        assert self._process is not None, "start() comes first"
        return self._process

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self.process.pid

    @property
    def child_pids(self) -> list[int]:
        """Process ids of the children that run."""
        return children_of(self.pid)

    def wait_ready(self, *, seconds: float = 60) -> WorkerProcess:
        """Wait until each child follows the orders of its supervisor."""
        self.wait_for(lambda: len(self._ready_children()) == self.processes, seconds=seconds, what="a child")
        return self

    def wait_for(self, look: Callable[[], T], *, seconds: float, what: str) -> T:
        """Poll until this worker did something; say at once what it printed if it has ended instead."""
        try:
            wait_for(lambda: look() or not self.is_running(), seconds=seconds, what=what)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}: {self.text}") from None
        if not (found := look()):
            raise NotInTimeError(f"{what}: the worker ended with {self.process.poll()} before it: {self.text}")
        return found

    def _ready_children(self) -> list[int]:
        # Its threads, the loop, and the thread that follows orders: that one is started last.
        return [pid for pid in self.child_pids if len(threads_of(pid)) >= self.threads + 2]

    @property
    def text(self) -> str:
        """What the worker and its children printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def is_running(self) -> bool:
        """Say whether the supervisor runs."""
        return self.process.poll() is None

    def group(self) -> list[int]:
        """Return the supervisor and its children."""
        return [self.pid, *self.child_pids]

    def kill_child(self, pid: int = 0) -> int:
        """End one child with SIGKILL and return which."""
        victim = pid or wait_for(lambda: self.child_pids, what="a child")[0]
        os.kill(victim, signal.SIGKILL)
        return victim

    def kill_supervisor(self) -> None:
        """End the supervisor alone with SIGKILL."""
        self.process.kill()
        self.process.wait(timeout=10)

    def kill_group(self) -> None:
        """End everything with SIGKILL, frozen or not; harmless when repeated."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(timeout=10)
        wait_for(lambda: not group_members(self.pid), seconds=10, what="the end of the group")

    def freeze(self) -> None:
        """Stop the whole group (SIGSTOP)."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the whole group go on (SIGCONT)."""
        os.killpg(self.pid, signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        self.process.send_signal(number)

    def term(self) -> None:
        """Ask the supervisor to stop."""
        self.signal(signal.SIGTERM)

    def wait(self, *, seconds: float) -> int:
        """Wait for the supervisor's end and return its exit code."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise NotInTimeError(f"the worker did not end within {seconds} s: {self.text}") from None


def children_of(pid: int) -> list[int]:
    """Return the process ids of the children of a process; zombies and the dead have none."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return [child for child in found if state_of(child) not in {"Z", ""}]


def threads_of(pid: int) -> list[str]:
    """Return the ids of a process's threads."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [task.name for task in Path(f"/proc/{pid}/task").iterdir()]
    return []


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process's state; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def group_members(group: int) -> list[int]:
    """Return the living processes of a process group."""
    return [pid for pid in _all_pids() if _group_of(pid) == group and state_of(pid) not in {"Z", ""}]


def zombies_of(group: int) -> list[int]:
    """Return the processes of a group that ended and that nobody reaped."""
    return [pid for pid in _all_pids() if _group_of(pid) == group and state_of(pid) == "Z"]


def _all_pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1
