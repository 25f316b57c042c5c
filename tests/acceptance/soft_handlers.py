"""Handlers that are told that their budget is over; loaded by workers alone."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.db import connection

from django_jobs import Confirmed, JobContext, RetryPolicy, effect, job
from django_jobs.exceptions import SoftTimeoutError
from tests.acceptance.handlers import FAST, insert_row, tell

SOFT = {"soft_timeout": True, "budget": timedelta(seconds=2), "cleanup": timedelta(seconds=10)}
ONCE = RetryPolicy(base=timedelta(milliseconds=100), unknown_attempts=2)


@job(type="acceptance.soft_loop", retry=FAST, atomic=False, **SOFT)
def loop(n: int) -> None:
    """Work without end, and end in good order when told."""
    tell("start", n)
    try:
        while True:
            time.sleep(0.01)
    except SoftTimeoutError:
        insert_row(n)
    tell("end", n)


@job(type="acceptance.soft_passes", retry=ONCE, **SOFT)
def passes(n: int) -> None:
    """Work without end, and let it pass."""
    tell("start", n)
    insert_row(n)
    while True:
        time.sleep(0.01)


@job(type="acceptance.soft_statement", retry=FAST, atomic=False, **SOFT)
def statement(n: int) -> None:
    """Wait for the database, and end in good order on the same connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        tell("start", n, session=cursor.fetchone()[0])
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(120)")
    except SoftTimeoutError:
        insert_row(n)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        tell("end", n, session=cursor.fetchone()[0])


@effect("acceptance.slow_call", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def slow_call(call: Any, *, n: int) -> Confirmed:
    """Answer a second after the budget of the job is over, with many places on the way to be interrupted at."""
    tell("call", n)
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        time.sleep(0.01)
    tell("called", n)
    return Confirmed(f"call-{n}")


@job(type="acceptance.soft_effect", retry=FAST, takes_context=True, **SOFT)
def with_effect(context: JobContext, n: int) -> None:
    """Ask for an effect that outlasts the budget; then go on without end."""
    try:
        context.effect("call", slow_call, n=n)
        while True:
            time.sleep(0.01)
    except SoftTimeoutError:
        tell("told", n)
    with context.complete():
        insert_row(n)
