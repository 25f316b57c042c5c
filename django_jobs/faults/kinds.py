"""The kinds of faults: what can be done to a process at a fault point. What hits its session is in a module beside."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from django_jobs.faults import sessions

supervisor = 0  # process id that SIGTERM goes to; 0: nobody told it


class InjectedError(Exception):
    """Stands for an error in our own code at a fault point."""


def kill(_: str) -> None:
    """End this process as the kernel does: nothing of it runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)


def term(_: str) -> None:
    """Ask the supervisor to stop, and go on."""
    os.kill(supervisor or os.getpid(), signal.SIGTERM)


def freeze(_: str) -> None:
    """Stop this process, all its threads, until somebody sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.05)  # the stop may reach another thread first


def fail(_: str) -> NoReturn:
    """Raise, as an error in our own code would.

    Raises:
        InjectedError: Always.
    """
    msg = "A test raised this at a fault point."
    raise InjectedError(msg)


def wait(door: Path) -> None:
    """Let this thread stand, and no other, until somebody opens the named pipe ``door`` for writing."""
    os.mkfifo(door)
    os.close(os.open(door, os.O_RDONLY))


def hold_interpreter(door: Path) -> None:
    """Stand until somebody opens ``door`` for writing, in C code that keeps the interpreter from all other threads."""
    os.mkfifo(door)
    system = ctypes.PyDLL(None)
    while (descriptor := system.open(os.fsencode(door), os.O_RDONLY)) < 0:
        pass  # a signal came
    os.close(descriptor)


# What is called with the alias of the database.
KINDS: dict[str, Callable[[str], object]] = {
    "kill": kill,
    "term": term,
    "freeze": freeze,
    "raise": fail,
    "lose_request": sessions.lose_request,
    "lose_reply": sessions.lose_reply,
    "terminate": sessions.terminate,
    "crowd": sessions.crowd,
    "deadlock": sessions.refuse("40P01", "deadlock detected"),
    "serialization": sessions.refuse("40001", "could not serialize access due to concurrent update"),
    "lock_timeout": sessions.refuse("55P03", "canceling statement due to lock timeout"),
    "disk_full": sessions.refuse("53100", "could not extend file: No space left on device"),
}
# What is called with the path of a named pipe that it makes, and lasts until somebody opens that for writing.
UNTIL_OPENED: dict[str, Callable[[Path], object]] = {"wait": wait, "hold_interpreter": hold_interpreter}
