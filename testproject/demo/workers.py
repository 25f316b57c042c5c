"""Real workers as processes of their own, each in a group of its own that can be frozen, woken and ended as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from testproject.demo.errors import DemoError
from testproject.demo.process_table import Process, in_group
from testproject.demo.waiting import Patience

ROOT = Path(__file__).resolve().parents[2]
NAME_PREFIX = "demo-"
CHILD_MODULE = "django_jobs.worker.child"
STOP_SECONDS = 30.0
SIGNAL_SECONDS = 10.0
TAIL = 15  # lines of a log that an error shows


class Worker:
    """One `manage.py runworker`: a supervisor and its child processes."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def pid(self) -> int:
        """The supervisor's process id, which is also the group's."""
        return self.process.pid

    def child(self, number: int) -> Process | None:
        """Return the living child process with this number."""
        mark = f'"child": {number},'
        for process in in_group(self.pid):
            if process.parent == self.pid and CHILD_MODULE in process.command and mark in process.command:
                return process
        return None

    def freeze(self, patience: Patience) -> int:
        """Stop every process of the group and return how many there are, once each of them stands still."""
        os.killpg(self.pid, signal.SIGSTOP)
        patience.until(
            f"every process of {self.name} to stand still",
            lambda: all(process.is_stopped for process in in_group(self.pid)),
            seconds=SIGNAL_SECONDS,
        )
        return len(in_group(self.pid))

    def wake(self) -> None:
        """Let every process of the group go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def tail(self) -> str:
        """Return the last lines of what the worker wrote."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL:]
        return "\n".join(f"    {line}" for line in lines) or "    (nothing)"

    def check_alive(self) -> None:
        """Raise DemoError if the worker has ended."""
        status = self.process.poll()
        if status is not None:
            raise DemoError(f"Worker {self.name} ended with status {status} before its work was done.")


class Workers:
    """
    Starts workers and ends them all; use it as a context manager.

    On a normal way out call `stop` first: it asks nicely and returns the exit statuses. Whatever is left at the end of
    the block is killed, and a keeper process does the same should the demo itself be killed.
    """

    def __init__(self, *, environment: Mapping[str, str], logs: Path) -> None:
        self._environment = {**os.environ, **environment}
        self._logs = logs
        self._started: list[Worker] = []
        self._stopping = False
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "testproject.demo.keeper"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._started:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.process.wait(STOP_SECONDS)
            self._tell("-", worker)
        _pipe(self._keeper).close()
        self._keeper.wait(STOP_SECONDS)

    def start(self, name: str, *, processes: int, threads: int) -> Worker:
        """Start a worker that serves every queue."""
        name = NAME_PREFIX + name
        log = self._logs / f"{name}.log"
        options = ["--name", name, "--processes", str(processes), "--threads", str(threads)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "runworker", "--no-reload", *options],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the demo, which then ends its workers
            )
        worker = Worker(name, process, log)
        self._started.append(worker)
        self._tell("+", worker)
        return worker

    def named(self, name: str) -> Worker:
        """Return the worker that its rows call by this name."""
        return next(worker for worker in self._started if worker.name == name)

    def check_alive(self) -> None:
        """Raise DemoError if one of them has ended before it was told to."""
        if self._stopping:
            return
        for worker in self._started:
            worker.check_alive()

    def tails(self) -> str:
        """Return the last lines that each of them wrote."""
        return "\n".join(f"  {worker.name} wrote:\n{worker.tail()}" for worker in self._started)

    def stop(self, patience: Patience) -> dict[str, int]:
        """Drain every worker with SIGTERM, wait for its end and return the exit statuses by name."""
        self._stopping = True
        for worker in self._started:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
        for worker in self._started:
            patience.until(f"worker {worker.name} to end after SIGTERM", _ended(worker), seconds=STOP_SECONDS)
        return {worker.name: int(worker.process.returncode) for worker in self._started}

    def _tell(self, sign: str, worker: Worker) -> None:
        with suppress(BrokenPipeError):
            _pipe(self._keeper).write(f"{sign}{worker.pid}\n")
            _pipe(self._keeper).flush()


def _ended(worker: Worker) -> Callable[[], bool]:
    return lambda: worker.process.poll() is not None


def _pipe(keeper: subprocess.Popen[str]) -> IO[str]:
    assert keeper.stdin is not None
    return keeper.stdin
