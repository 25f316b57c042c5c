"""The body of the job, the same for every system: what it does is told on a connection of its own, to a server no fault hits.

A start, some time, a request to the outside (the effect), a row in the system's own database, some more time, the end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

BEFORE = float(os.environ.get("RECOVERY_BEFORE", "0.15"))  # seconds
AFTER = float(os.environ.get("RECOVERY_AFTER", "0.15"))
SLOW = float(os.environ.get("RECOVERY_SLOW", "12"))
INSERT_ROW = "INSERT INTO business_row (key, pid) VALUES (%s, %s)"
REQUEST = """
INSERT INTO request (key, provider_key, execution)
VALUES (%s, %s, (SELECT max(id) FROM execution WHERE key = %s AND pid = %s))
"""


def witness() -> psycopg.Connection:
    """Open a connection to the witness; close it after use."""
    return psycopg.connect(os.environ["RECOVERY_WITNESS"], autocommit=True)


def perform(key: str, insert_row: Callable[[str], object]) -> None:
    """Do all of it, the effect without a key: the handler that anybody would write."""
    with execution(key):
        time.sleep(SLOW if key.startswith("slow") else BEFORE)
        request(key)
        insert_row(key)
        time.sleep(AFTER)


@contextmanager
def execution(key: str) -> Iterator[None]:
    """Tell the start and the end of the handler; a poison job ends its process in between."""
    pid = os.getpid()
    with witness() as told:
        insert = "INSERT INTO execution (key, pid) VALUES (%s, %s) RETURNING id"
        number = told.execute(insert, [key, pid]).fetchone()[0]
        if key.startswith("poison"):
            os.kill(pid, signal.SIGKILL)
        try:
            yield
        except BaseException:
            told.execute("UPDATE execution SET raised_at = clock_timestamp() WHERE id = %s", [number])
            raise
        told.execute("UPDATE execution SET returned_at = clock_timestamp() WHERE id = %s", [number])


def request(key: str, provider_key: str | None = None) -> None:
    """Ask the provider for the effect; with a key it applies the request once, however often it is asked."""
    with witness() as told:
        told.execute(REQUEST, [key, provider_key, key, os.getpid()])


def orm_row(key: str) -> None:
    """Write the business row through Django, on the connection that the system gives its handlers."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(INSERT_ROW, [key, os.getpid()])


def own_row(key: str) -> None:
    """Write the business row on a connection of the handler's own, where the system is no Django app."""
    with psycopg.connect(os.environ["RECOVERY_DATABASE"], autocommit=True) as connection:
        connection.execute(INSERT_ROW, [key, os.getpid()])
