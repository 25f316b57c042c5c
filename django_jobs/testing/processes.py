"""Real workers for tests: processes on the database of the test, which can be killed, stopped and asked to end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from django.db import DEFAULT_DB_ALIAS, connections

from django_jobs.exceptions import KitError
from django_jobs.faults.arming import VARIABLE as FAULT
from django_jobs.faults.arming import Fault
from django_jobs.models import Worker
from django_jobs.testing.worker_settings import VARIABLE

# A lost worker is noticed after seconds instead of half a minute.
QUICK: dict[str, Any] = {
    "HEARTBEAT": timedelta(seconds=1),
    "SILENT_AFTER": timedelta(seconds=3),
    "EXPIRED_PATIENCE": timedelta(seconds=1),
    "REAPER_TICK": timedelta(seconds=1),
    "GRACE": timedelta(seconds=5),
    "MAX_CALL": timedelta(seconds=3),
}
PLACE = ("NAME", "HOST", "PORT", "USER")
LOOK_EVERY = 0.02


class WorkerProcess:
    """One ``runworker`` in a session of its own, on the database of the test; use it with ``with``.

    For tests that commit: ``TransactionTestCase``, or ``django_db(transaction=True)``. What a test replaces in its own
    process (a patched function, an overridden setting) does not exist in the worker's.

    Args:
        using: The database whose jobs it runs.
        threads: Handlers at a time, per process.
        processes: Children.
        arguments: More arguments of ``runworker``, for example ``("--queues", "mail")``.
        environment: More environment variables.
        rules: What differs in ``DJANGO_JOBS``, beside the short times of ``QUICK``.
        fault: What hits it: a kind of fault, a point, and perhaps the time: ``("kill", "effect.after_call")``.
    """

    def __init__(
        self,
        *,
        using: str = DEFAULT_DB_ALIAS,
        threads: int = 1,
        processes: int = 1,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        rules: Mapping[str, Any] | None = None,
        fault: tuple[str, str] | tuple[str, str, int] | None = None,
    ) -> None:
        self.using, self.threads, self.processes = using, threads, processes
        self.name = f"kit-{uuid.uuid4().hex[:12]}"
        self._arguments, self._environment, self._rules = arguments, environment or {}, rules or {}
        self._folder = tempfile.TemporaryDirectory(prefix="django-jobs-kit-")
        self._fault = self._made(fault) if fault else None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it is ready."""
        self.start()
        try:
            return self.wait_ready()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        """Kill it, and remove its files."""
        self.kill()
        self._folder.cleanup()

    def start(self) -> Self:
        """Start it, without waiting for anything.

        Raises:
            KitError: The test does not commit, its database is in the memory of this process, or its settings are in no
                module.
        """
        check_shared(self.using)
        command = [sys.executable, "-m", "django", "runworker", "--name", self.name, "--database", self.using]
        command += ["--threads", str(self.threads), "--processes", str(self.processes), *self._arguments]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def wait_ready(self, *, seconds: float = 60) -> Self:
        """Wait until it has registered itself and claims jobs.

        Raises:
            KitError: It ended before, or took too long; the message has what it printed.
        """
        self.wait_for(self._is_ready, seconds=seconds, what="a ready worker")
        return self

    def wait_for(self, look: Callable[[], object], *, seconds: float = 60, what: str = "it") -> None:
        """Wait until ``look()`` is true.

        Raises:
            KitError: The worker ended before, or it took too long; the message has what it printed.
        """
        deadline = time.monotonic() + seconds
        while not look():
            ended = self._process.poll() if self._process else None
            if ended is not None and not look():
                msg = f"Waited for {what}, and the worker ended with status {ended}. It printed:\n{self.output}"
                raise KitError(msg)
            if time.monotonic() > deadline:
                msg = f"Waited {seconds:g} seconds for {what}. The worker printed:\n{self.output}"
                raise KitError(msg)
            threading.Event().wait(LOOK_EVERY)

    @property
    def output(self) -> str:
        """What it and its children printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        """The process id of its supervisor.

        Raises:
            KitError: It was not started.
        """
        if self._process is None:
            msg = "Start the worker first: with WorkerProcess() as worker, or worker.start()."
            raise KitError(msg)
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether its supervisor runs, or stands still."""
        return self._process is not None and self._process.poll() is None

    @property
    def fault_fired(self) -> bool:
        """Whether the fault that it was given has happened."""
        return self._fault is not None and Path(self._fault.marker).exists()

    def kill(self) -> None:
        """End supervisor and children with SIGKILL, as a machine does that loses its power; harmless when repeated."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(timeout=30)

    def stop(self) -> None:
        """Let all its processes stand still (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        """Let them go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def term(self, *, seconds: float = 60) -> int:
        """Ask it to end (SIGTERM), and return its exit code.

        Raises:
            KitError: It did not end in time; the message has what it printed.
        """
        os.kill(self.pid, signal.SIGTERM)
        assert self._process is not None  # noqa: S101  pid says so
        try:
            return self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            msg = f"The worker did not end within {seconds:g} seconds. It printed:\n{self.output}"
            raise KitError(msg) from None

    @property
    def _log(self) -> Path:
        return Path(self._folder.name, "output.txt")

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _is_ready(self) -> bool:
        return Worker.objects.using(self.using).filter(name=self.name).exists()

    def _made(self, fault: tuple[Any, ...]) -> Fault:
        kind, point, *nth = fault
        marker = str(Path(self._folder.name, "fault"))
        made = Fault(point=point, kind=kind, nth=nth[0] if nth else 1, marker=marker)
        return Fault.from_json(made.to_json())

    def _variables(self) -> dict[str, str]:
        given = {
            "settings": _module(),
            "databases": {alias: _place(alias) for alias in connections},
            "rules": {name: _plain(value) for name, value in {**QUICK, **self._rules}.items()},
        }
        fault = {FAULT: self._fault.to_json()} if self._fault else {}
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "django_jobs.testing.worker_settings",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            VARIABLE: json.dumps(given),
            **fault,
            **self._environment,
        }


def check_shared(using: str) -> None:
    """Refuse a database that another process cannot see as the test does.

    Raises:
        KitError: The test does not commit, or its database is in the memory of this process.
    """
    connection: Any = connections[using]
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        msg = (
            f"The database {using!r} is in the memory of this process, where no worker can see it. Give SQLite a file "
            'for tests: DATABASES[…]["TEST"] = {"NAME": "test.sqlite3"}.'
        )
        raise KitError(msg)
    if connection.in_atomic_block:
        msg = (
            "This test never commits, so a worker process would see none of its rows. Use TransactionTestCase, or "
            "@pytest.mark.django_db(transaction=True)."
        )
        raise KitError(msg)


def _module() -> str:
    """Name the module that a process of its own can read the settings from."""
    if name := os.environ.get("DJANGO_SETTINGS_MODULE"):
        return name
    msg = "A worker process reads its settings from a module: name it in DJANGO_SETTINGS_MODULE."
    raise KitError(msg)


def _place(alias: str) -> dict[str, Any]:
    values = connections[alias].settings_dict
    return {name: str(values[name]) for name in PLACE if values.get(name)}


def _plain(value: Any) -> Any:
    return {"seconds": value.total_seconds()} if isinstance(value, timedelta) else value
