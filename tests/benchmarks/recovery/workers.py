"""Workers as processes in sessions of their own: all that a worker started dies, freezes and goes on together."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.workers import state_of, wait_for

PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may be loaded


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Return the living processes of a session, whoever their parents are now."""
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if path.name.isdigit() and os.getsid(int(path.name)) == session and state_of(int(path.name)) not in "ZX":
                found.append(int(path.name))
    return found


@dataclass(slots=True, kw_only=True)
class Worker:
    """One worker of any system."""

    command: Sequence[str | Path]
    env: Mapping[str, str]
    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Start it, again if it has ended."""
        self._started = time.monotonic()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in self.command],
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started."""
        assert self._process is not None, "start() comes first"
        return self._process

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started

    def is_running(self) -> bool:
        """Say whether that process lives."""
        return self.process.poll() is None

    def pids(self) -> list[int]:
        """Return it and everything that it started."""
        return session_members(self.process.pid)

    def kill(self) -> None:
        """End all of it with SIGKILL, frozen or not, and wait until it is gone; harmless when repeated."""
        if self._process is None:
            return
        for _ in range(5):  # what was being born meanwhile is met in the next round
            self.signal(signal.SIGKILL)
            self.process.wait(timeout=10)
            with contextlib.suppress(AssertionError):
                wait_for(lambda: not self.pids(), seconds=2, what="the end of the session")
                return

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Feeder:
    """A process that enqueues, with the system's own calls, what it is told."""

    def __init__(self, python: Path, env: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "recovery_site.feed"],
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._log = log
        self._expect("ready", seconds=120)

    def feed(self, keys: Sequence[str]) -> None:
        """Enqueue one job per key, and return when that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(keys)) + "\n")
        self._process.stdin.flush()
        self._expect("done", seconds=120)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(timeout=10)

    def _expect(self, word: str, *, seconds: float) -> None:
        assert self._process.stdout is not None
        guard = threading.Timer(seconds, self._process.kill)
        guard.start()
        try:
            for line in self._process.stdout:  # a system may greet on standard output
                if line.strip() == word:
                    return
        finally:
            guard.cancel()
        raise RuntimeError(f"the feeder ended before it said {word!r}: see {self._log}")
