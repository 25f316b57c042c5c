"""What can be done to the database session of the thread that comes to a fault point."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

TERMINATION = 5000  # milliseconds in which the server ends a session


def lose_request(using: str) -> None:
    """End the connection of this thread: what it sends next does not arrive."""
    _sever(_opened(using).connection)


def lose_reply(using: str) -> None:
    """Let the next statement or COMMIT of this thread be done, and end the connection before its reply is read."""
    connection = _opened(using)

    def lose(raw: Any, action: Callable[[], object]) -> NoReturn:
        action()
        _sever(raw)
        msg = "A test lost the reply to this."
        raise OperationalError(msg)

    _instead_of_next(connection, lose)


def terminate(using: str) -> None:
    """Have the server end the session of this thread, and wait until it is over."""
    import psycopg

    connection = _opened(using)
    raw: Any = connection.connection
    given: dict[str, Any] = connection.get_connection_params()
    names = {name: value for name, value in given.items() if name not in {"cursor_factory", "context"}}
    with psycopg.connect(**names, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, %s)", [raw.info.backend_pid, TERMINATION])


def crowd(using: str) -> None:
    """End the connection of this thread, and have the next try to connect refused: there are too many clients."""
    connection: Any = _opened(using)

    def refused(_: dict[str, Any]) -> NoReturn:
        del connection.get_new_connection  # the method of its class is back
        import psycopg

        msg = "connection failed: FATAL:  sorry, too many clients already"  # psycopg gives no SQLSTATE (53300) here
        raise psycopg.OperationalError(msg)

    connection.get_new_connection = refused
    _sever(connection.connection)


def refuse(sqlstate: str, message: str) -> Callable[[str], None]:
    """Return what makes the server answer the next statement or COMMIT of the thread with an error, once."""

    def refused(using: str) -> None:
        connection = _opened(using)

        def answer(raw: Any, action: Callable[[], object]) -> NoReturn:
            with connection.wrap_database_errors:
                _raise_on_server(raw, sqlstate, message, is_commit=action == raw.commit)
            raise AssertionError(sqlstate)

        _instead_of_next(connection, answer)

    return refused


def _instead_of_next(connection: BaseDatabaseWrapper, act: Callable[[Any, Callable[[], object]], NoReturn]) -> None:
    """Call ``act`` with the driver's connection and the next statement or COMMIT, which it may do or not.

    Where the job ends before it sends anything, the worker takes its wrappers off the connection: the fault is over.
    """
    raw: Any = connection.connection

    def around(execute: Callable[..., Any], *arguments: Any) -> Any:
        if connection.connection is raw:
            restore()
            act(raw, lambda: execute(*arguments))
        connection.execute_wrappers.remove(around)  # it was replaced before anything was sent
        return execute(*arguments)

    def restore() -> None:
        connection.execute_wrappers.remove(around)
        del raw.commit  # the method of its class is back

    def commit() -> None:
        if around in connection.execute_wrappers:
            restore()
            act(raw, raw.commit)
        del raw.commit
        raw.commit()

    connection.execute_wrappers.insert(0, around)  # whoever adds one for a block takes the last one away
    raw.commit = commit


def _raise_on_server(raw: Any, sqlstate: str, message: str, *, is_commit: bool) -> NoReturn:
    """Have the server itself raise: an open transaction of the session is then broken, as it would be.

    Sent below the driver's cursors, because those would be seen as statements of the handler.
    """
    import psycopg

    line = raw.pgconn
    if not raw.autocommit and line.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        line.exec_(b"BEGIN")
    text = f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{sqlstate}', MESSAGE = '{message}'; END $$"
    error = psycopg.errors.error_from_result(line.exec_(text.encode()))
    if is_commit:  # a COMMIT that is refused has ended the transaction
        line.exec_(b"ROLLBACK")
    raise error


def _opened(using: str) -> BaseDatabaseWrapper:
    connection = connections[using]
    connection.ensure_connection()
    return connection


def _sever(raw: Any) -> None:
    """End the socket alone: to close libpq's connection would tell the client what it must find out by itself."""
    with socket.socket(fileno=os.dup(raw.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
