"""Development: the worker as a process of its own, started anew when code changes, by the means of ``runserver``."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.management.base import CommandError
from django.db import connections
from django.utils import autoreload

from django_jobs.worker.config import Exit
from django_jobs.worker.wake import Wake

logger = logging.getLogger("django_jobs.worker")

VARIABLE = "DJANGO_JOBS_RELOADER"  # the descriptor whose end tells the worker that its reloader died
TICK = 0.2  # seconds
_COMMANDS = frozenset({"runworker", "work"})
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_wanted(options: dict[str, Any]) -> bool:
    """Say whether this call is to watch the code: with DEBUG unless it was switched off, never without, nor to drain.

    Raises:
        CommandError: It was asked for where it cannot be had.
    """
    asked = options.get("reload")
    from_line = bool(_COMMANDS & set(sys.argv[1:3]))
    if asked is None:
        return settings.DEBUG and not options["drain"] and from_line
    if asked:
        for hinders, why in (
            (not settings.DEBUG, "it needs DEBUG=True; in production restart workers when you deploy"),
            (options["drain"], "a worker that drains ends by itself"),
            (not from_line, "it starts the command line of this process anew, and that is no worker's"),
        ):
            if hinders:
                msg = f"--reload cannot be used here: {why}."
                raise CommandError(msg, returncode=Exit.USAGE)
    return bool(asked)


def end_with_reloader() -> None:
    """In the worker: drain when the reloader that started it is gone."""
    descriptor = os.environ.pop(VARIABLE, "")
    if not descriptor:
        return

    def wait() -> None:
        os.read(int(descriptor), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    os.set_inheritable(int(descriptor), False)
    threading.Thread(target=wait, name="django_jobs-reloader", daemon=True).start()


class Reloader:
    """Runs one worker after the other; what a handler runs may end within the grace, or its job is given back."""

    def __init__(self) -> None:
        self._wake = Wake()
        self._changed = threading.Event()
        self._signals: list[signal.Signals] = []
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._read_end, self._write_end = os.pipe()  # nobody writes: the end of this process ends the line

    def run(self) -> int:
        """Serve until stopped; returns the last worker's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup
                signal.signal(number, self._note_signal)
        signal.signal(signal.SIGQUIT, self._pass_on)
        signal.signal(signal.SIGCHLD, lambda *_: self._wake.set())
        connections.close_all()  # what the checks of this command opened
        self._watch()
        while True:
            self._changed.clear()
            status = self._serve(self._start())
            if self._stopping or (status == Exit.CLEAN and not self._changed.is_set()):
                return status if status >= 0 else Exit.FAILURE
            if not self._changed.is_set():
                logger.error("The worker ended with status %s; it is started again when code changes", status)
            while not self._changed.is_set():
                if self._signals:
                    return status if status >= 0 else Exit.FAILURE
                self._wake.wait(TICK)

    def _note_signal(self, number: int, _: object) -> None:
        self._signals.append(signal.Signals(number))
        self._wake.set()

    def _pass_on(self, number: int, _: object) -> None:
        if self._process is not None:
            _send(self._process, signal.Signals(number))

    def _watch(self) -> None:
        autoreload.autoreload_started.connect(_watch_apps)
        autoreload.file_changed.connect(self._note_change)
        watching = autoreload.get_reloader()
        threading.Thread(
            target=watching.run, args=(threading.main_thread(),), name="django_jobs-reload", daemon=True
        ).start()

    def _note_change(self, file_path: Path, **_: object) -> bool:
        if not self._changed.is_set():
            logger.warning("%s changed; the worker is started anew", file_path)
        self._changed.set()
        self._wake.set()
        return True  # Django itself would end this process

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*autoreload.get_child_arguments(), "--no-reload"],
            env={**os.environ, VARIABLE: str(self._read_end)},
            pass_fds=[self._read_end],
            stdin=subprocess.DEVNULL,
            process_group=0,  # a terminal's Ctrl-C is passed on from here, once
        )

    def _serve(self, process: subprocess.Popen[bytes]) -> int:
        told = False
        self._process = process
        while (status := process.poll()) is None:
            while self._signals:
                self._stopping = True
                _send(process, self._signals.pop(0))
            if self._changed.is_set() and not told:
                told = True
                _send(process, signal.SIGTERM)
            self._wake.wait(TICK)
        return status


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _watch_apps(sender: autoreload.BaseReloader, **_: object) -> None:
    """Watch also modules of the project that nobody has imported yet."""
    for config in apps.get_app_configs():
        if not _INSTALLED & set(Path(config.path).parts):
            sender.watch_dir(Path(config.path), "**/*.py")
