"""Several threads or programs that do something at the same moment."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 60.0  # seconds; nothing here takes long


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run each call in a thread of its own, released at one moment; return results or errors in their order."""
    results: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls), timeout=TIMEOUT)

    def run(place: int) -> None:
        try:
            connections["default"].ensure_connection()
            barrier.wait()
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=TIMEOUT)
    assert not [thread for thread in threads if thread.is_alive()], "a thread hangs"
    return results


@contextmanager
def meanwhile(begin: Callable[[Callable[[], None]], None]) -> Iterator[Callable[[], None]]:
    """Run ``begin(pause)`` in a thread up to its pause; the block runs there, then (or when it asks) the thread goes on.

    Yields a function that lets the thread go on and waits for its end. An error of the thread is raised in the block.
    """
    paused, resume = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def pause() -> None:
        paused.set()
        assert resume.wait(TIMEOUT)

    def run() -> None:
        try:
            begin(pause)
        except BaseException as error:
            errors.append(error)
        finally:
            paused.set()
            connections.close_all()

    thread = threading.Thread(target=run, daemon=True)

    def finish() -> None:
        resume.set()
        thread.join(timeout=TIMEOUT)
        assert not thread.is_alive()
        if errors:
            raise errors[0]

    thread.start()
    assert paused.wait(TIMEOUT)
    try:
        yield finish
    finally:
        finish()


def programs(module: str, arguments: Sequence[Sequence[str]], url: str) -> list[str]:
    """Start ``module`` once per list of arguments, let all go at one moment, and return what each printed.

    A program prints ``ready`` and waits for a line before it begins.
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-m", module, *given],
            cwd=ROOT,
            env={"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "testproject.settings", **_inherited()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for given in arguments
    ]
    try:
        for program in started:
            assert program.stdout is not None
            line = program.stdout.readline()
            assert line == "ready\n", (line, program.stderr.read() if program.stderr and not line else "")
        for program in started:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        outputs = []
        for program in started:
            output, errors = program.communicate(timeout=TIMEOUT)
            assert program.returncode == 0, errors
            outputs.append(output)
        return outputs
    finally:
        for program in started:
            program.kill()
            program.wait()


def _inherited() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "DJANGO_SETTINGS_MODULE"}}
