"""Handlers for workers under test; loaded by them through ``JOBS_IMPORTS``.

Each tells what it does in a file that a kill cannot take back, and writes its business row into a plain table.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import threading
import time
from datetime import timedelta
from typing import Any

from django.db import connection

from django_jobs import Confirmed, JobContext, RetryPolicy, effect, job
from django_jobs.enqueue.inside import current

WITNESS_TABLE = "acceptance_witness"
FAST = RetryPolicy(base=timedelta(milliseconds=100), cap=timedelta(milliseconds=200))
SHORT = {"budget": timedelta(seconds=1), "cleanup": timedelta(seconds=1)}


def tell(what: str, n: int = 0, **more: Any) -> None:
    """Append one line to the witness file, whole or not at all."""
    inside = current.get()
    line = {"what": what, "n": n, "pid": os.getpid(), "at": time.monotonic(), **more}
    line["job"] = str(inside.job_id) if inside else ""
    descriptor = os.open(os.environ["JOBS_WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def take(seconds: float) -> None:
    """Take time, as a call or a computation would; a second thread of the process goes on meanwhile."""
    threading.Event().wait(seconds)


def insert_row(n: int) -> None:
    """Write the business row; the table has no unique constraint on purpose."""
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {WITNESS_TABLE} (n, pid) VALUES (%s, %s)", [n, os.getpid()])


@job(type="acceptance.row", retry=FAST)
def row(n: int, seconds: float = 0.0) -> None:
    """The five lines: a row, in one transaction with the success."""
    tell("start", n)
    insert_row(n)
    take(seconds)
    tell("end", n)


@job(type="acceptance.work", retry=FAST, takes_context=True)
def work(context: JobContext, n: int, seconds: float = 0.0) -> None:
    """Work for a while, then write the row together with the success."""
    tell("start", n, number=context.attempt)
    take(seconds)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(type="acceptance.short_lease", retry=FAST, takes_context=True, **SHORT)
def short_lease(context: JobContext, n: int, seconds: float = 0.0, report: bool = False) -> None:
    """Work under a lease of two seconds; ``report`` tells progress every half second."""
    tell("start", n, number=context.attempt)
    ends = time.monotonic() + seconds
    value = 0
    while time.monotonic() < ends:
        take(min(0.5, max(0.0, ends - time.monotonic())))
        value += 1
        if report:
            context.progress(value)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(type="acceptance.bounded", retry=FAST, takes_context=True, max_runtime=timedelta(seconds=5), **SHORT)
def bounded(context: JobContext, n: int) -> None:
    """Report progress without an end."""
    tell("start", n, number=context.attempt)
    value = 0
    while True:
        take(0.2)
        value += 1
        context.progress(value)


@job(type="acceptance.frozen_call", retry=FAST, takes_context=True, **SHORT)
def frozen_call(context: JobContext, n: int, first: float) -> None:
    """Take ``first`` seconds in one piece the first time, none later."""
    tell("start", n, number=context.attempt)
    take(first if context.attempt == 1 else 0)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(type="acceptance.dead_on_second", takes_context=True, **SHORT)
def dead_on_second(context: JobContext, n: int, first: float) -> None:
    """Take time the first time; fail for good the second time."""
    tell("start", n, number=context.attempt)
    if context.attempt > 1:
        from django_jobs.exceptions import PermanentError

        raise PermanentError("not any more")
    take(first)
    with context.complete():
        insert_row(n)


@job(type="acceptance.dead_on_first", takes_context=True)
def dead_on_first(context: JobContext, n: int) -> None:
    """Fail for good the first time; write the row when somebody has it replayed."""
    if context.attempt == 1:
        from django_jobs.exceptions import PermanentError

        raise PermanentError("not yet")
    with context.complete():
        insert_row(n)


@job(type="acceptance.killer", atomic=False)
def killer(how: str) -> None:
    """End the process in one of the ways that leave no exception."""
    tell("start", how=how)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "segfault":
        ctypes.string_at(0)
    else:
        os._exit(int(how.removeprefix("exit")))


@job(type="acceptance.spin", retry=RetryPolicy(unknown_attempts=1), atomic=False, **SHORT)
def spin(how: str) -> None:
    """Never return: in Python, or in a call that frees the interpreter."""
    tell("start", how=how)
    if how == "call":
        ctypes.CDLL(None).sleep(600)
    while True:
        pass


@job(type="acceptance.spin_in_transaction", retry=RetryPolicy(unknown_attempts=1), **SHORT)
def spin_in_transaction() -> None:
    """Never return, with a row written and its transaction open."""
    tell("start", how="transaction")
    insert_row(0)
    while True:
        pass


@job(type="acceptance.late", retry=RetryPolicy(unknown_attempts=1), takes_context=True, **SHORT)
def late(context: JobContext, n: int, seconds: float) -> None:
    """Run past the lease in one piece, then try to act."""
    tell("start", n)
    take(seconds)
    try:
        with context.complete():
            insert_row(n)
    except BaseException as error:
        tell("refused", n, error=type(error).__name__)
        raise


@job(type="acceptance.orm", retry=FAST, atomic=False)
def orm(n: int, seconds: float) -> None:
    """Use the ORM before and after some time, on the handler's own connection."""
    tell("start", n)
    insert_row(-n)
    take(seconds)
    insert_row(n)
    tell("end", n)


@job(type="acceptance.backend", atomic=False)
def backend(n: int, queries: int = 1) -> None:
    """Ask the server many times which process serves this connection."""
    for _ in range(queries):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            server = cursor.fetchone()[0]
    take(0.05)
    tell("backend", n, server=server, thread=threading.get_ident())


@job(type="acceptance.loud", atomic=False)
def loud(n: int) -> None:
    """Print, and die."""
    print(f"printed by {n}")
    os.kill(os.getpid(), signal.SIGKILL)


@job(type="acceptance.fails", retry=RetryPolicy(base=timedelta(milliseconds=50), cap=timedelta(milliseconds=50)))
def fails(n: int) -> None:
    """Raise each time."""
    tell("start", n)
    raise ValueError("no")


@job(type="acceptance.open_call", takes_context=True)
def open_call(context: JobContext, n: int, seconds: float) -> None:
    """Have a request to a provider under way for some seconds."""

    @effect("acceptance.provider", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=3))
    def ask(call: Any, *, n: int) -> Confirmed:
        tell("call", n)
        take(seconds)
        tell("answered", n)
        return Confirmed("done")

    tell("start", n, number=context.attempt)
    context.effect("ask", ask, n=n)
    take(30)


def hold(context: JobContext, n: int, seconds: float) -> None:
    """Keep the job's row locked the first time: inside the completion, with a row written."""
    tell("start", n, number=context.attempt)
    with context.complete():
        insert_row(n)
        tell("holding", n, number=context.attempt)
        take(seconds if context.attempt == 1 else 0)
    tell("end", n, number=context.attempt)


held_shortly = job(type="acceptance.held_shortly", retry=FAST, takes_context=True, **SHORT)(hold)
held_long = job(type="acceptance.held_long", retry=FAST, takes_context=True)(hold)


@job(type="acceptance.group_killer", retry=FAST, atomic=False)
def group_killer() -> None:
    """End the whole worker: its supervisor, its children, and this process."""
    tell("start", how="group")
    os.killpg(os.getpgid(0), signal.SIGKILL)


@job(type="acceptance.long_twice", retry=FAST, takes_context=True)
def long_twice(context: JobContext, n: int) -> None:
    """Run for a minute in the first two attempts, a moment later."""
    tell("start", n, number=context.attempt)
    take(60 if context.attempt <= 2 else 0.05)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


def _go_on(context: JobContext, n: int, seconds: float, *, every: float) -> None:
    tell("start", n, number=context.attempt)
    ends = time.monotonic() + seconds
    value = 0
    while time.monotonic() < ends:
        take(every)
        value += 1
        context.progress(value)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(type="acceptance.steady", retry=FAST, takes_context=True, **SHORT)
def steady(context: JobContext, n: int, seconds: float) -> None:
    """Work under a lease of two seconds and tell progress each 200 ms."""
    _go_on(context, n, seconds, every=0.2)


@job(type="acceptance.patient", retry=FAST, takes_context=True, budget=timedelta(seconds=150))
def patient(context: JobContext, n: int, seconds: float) -> None:
    """Work for a long time under a lease that outlives an outage, telling progress every second."""
    _go_on(context, n, seconds, every=1.0)


@effect("acceptance.answers", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=3))
def answers(call: Any, *, n: int) -> Confirmed:
    """A provider that does what is asked, at once."""
    tell("call", n, key=call.key)
    return Confirmed(f"done {n}")


@job(type="acceptance.everything", retry=FAST, takes_context=True)
def everything(context: JobContext, n: int, seconds: float = 0.0) -> None:
    """A step, an effect, and a row and a further job together with the success."""
    tell("start", n, number=context.attempt)
    context.step("counted", lambda: n)
    context.effect("ask", answers, n=n)
    take(seconds)
    with context.complete():
        insert_row(n)
        row.enqueue(n=n + 1000)
    tell("end", n, number=context.attempt)


@job(type="acceptance.listening", retry=FAST, takes_context=True)
def listening(context: JobContext, n: int, seconds: float) -> None:
    """Work in small pieces until somebody wants it cancelled; a job that nobody wants writes no row."""
    tell("start", n, number=context.attempt)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        take(0.02)
        if context.cancelled:
            tell("heard", n)
        context.progress(int(time.monotonic() * 1000))
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)
