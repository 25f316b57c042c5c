"""What can be done to a process, or to the connection of the thread, at a fault point."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

TERMINATION = 5000  # milliseconds in which the server ends a session

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


def lose_request(using: str) -> None:
    """End the connection of this thread: what it sends next does not arrive."""
    _sever(_opened(using).connection)


def lose_reply(using: str) -> None:
    """Let the next statement or COMMIT of this thread be done, and end the connection before its reply is read."""
    connection = _opened(using)
    raw: Any = connection.connection

    def lost_statement(execute: Callable[..., Any], *arguments: Any) -> Any:
        if connection.connection is raw:
            lose(lambda: execute(*arguments))
        connection.execute_wrappers.remove(lost_statement)  # it was replaced before anything was sent
        return execute(*arguments)

    def lose(action: Callable[[], object]) -> NoReturn:
        connection.execute_wrappers.remove(lost_statement)
        del raw.commit  # the method of its class is back
        action()
        _sever(raw)
        msg = "A test lost the reply to this."
        raise OperationalError(msg)

    connection.execute_wrappers.insert(0, lost_statement)  # whoever adds one for a block takes the last one away
    commit = raw.commit
    raw.commit = lambda: lose(commit)


def terminate(using: str) -> None:
    """Have the server end the session of this thread, and wait until it is over."""
    import psycopg

    connection = _opened(using)
    raw: Any = connection.connection
    given: dict[str, Any] = connection.get_connection_params()
    names = {name: value for name, value in given.items() if name not in {"cursor_factory", "context"}}
    with psycopg.connect(**names, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, %s)", [raw.info.backend_pid, TERMINATION])


def _opened(using: str) -> BaseDatabaseWrapper:
    connection = connections[using]
    connection.ensure_connection()
    return connection


def _sever(raw: Any) -> None:
    """End the socket alone: to close libpq's connection would tell the client what it must find out by itself."""
    with socket.socket(fileno=os.dup(raw.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


KINDS: dict[str, Callable[[str], object]] = {
    "kill": kill,
    "term": term,
    "freeze": freeze,
    "raise": fail,
    "lose_request": lose_request,
    "lose_reply": lose_reply,
    "terminate": terminate,
}
