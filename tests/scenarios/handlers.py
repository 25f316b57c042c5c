"""Handlers of the scenarios; loaded by workers through ``JOBS_IMPORTS``, beside those of the acceptance tests."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django_jobs import Confirmed, JobContext, RetryPolicy, effect, job
from tests.acceptance.handlers import FAST, SHORT, insert_row, take, tell

MEGABYTE = 1024 * 1024
ONCE = RetryPolicy(unknown_attempts=1)


@job(type="scenarios.stuck_value", retry=FAST, takes_context=True, **SHORT)
def stuck_value(context: JobContext, n: int, seconds: float) -> None:
    """Work under a lease of two seconds; the first attempt tells the same progress again and again."""
    tell("start", n, number=context.attempt)
    ends = time.monotonic() + (seconds if context.attempt == 1 else 0)
    while time.monotonic() < ends:
        take(0.2)
        context.progress(7)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(
    type="scenarios.waits_first",
    retry=FAST,
    takes_context=True,
    budget=timedelta(seconds=5),
    cleanup=timedelta(seconds=1),
)
def waits_first(context: JobContext, n: int, first: float) -> None:
    """Take time in the first attempt alone, then write the row together with the success."""
    tell("start", n, number=context.attempt)
    take(first if context.attempt == 1 else 0)
    tell("woken", n, number=context.attempt)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@effect("scenarios.quick", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def quick(call: Any, *, n: int) -> Confirmed:
    """A provider that does what is asked, at once."""
    tell("call", n, key=call.key)
    return Confirmed(f"done {n}")


@job(
    type="scenarios.gil",
    retry=FAST,
    takes_context=True,
    budget=timedelta(seconds=4),
    cleanup=timedelta(seconds=1),
)
def gil(context: JobContext, n: int, seconds: float) -> None:
    """Act on a provider, then hold the interpreter in C code the first time: no thread of this process runs meanwhile."""
    tell("start", n, number=context.attempt)
    context.effect("ask", quick, n=n)
    if context.attempt == 1:
        tell("holding", n, number=context.attempt)
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
        tell("released", n, number=context.attempt)
    with context.complete():
        insert_row(n)
    tell("end", n, number=context.attempt)


@job(type="scenarios.limited_memory", retry=ONCE, atomic=False)
def limited_memory(megabytes: int) -> None:
    """Ask for more memory than this process may have; the limit is taken back, because the process serves on."""
    tell("start", megabytes)
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * MEGABYTE, before[1]))
    try:
        bytearray(megabytes * MEGABYTE)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@job(type="scenarios.eats_memory", atomic=False)
def eats_memory(megabytes: int) -> None:
    """Take so much memory and keep it: somebody outside ends processes that hold too much."""
    tell("start", megabytes)
    kept = bytearray(megabytes * MEGABYTE)
    for place in range(0, len(kept), 4096):
        kept[place] = 1  # touched, else the kernel only promises it
    tell("full", megabytes)
    take(60)


def _deep() -> None:
    _deep()


@job(type="scenarios.poison", retry=ONCE, atomic=False, **SHORT)
def poison(how: str) -> None:
    """Do to the process whatever a handler can do."""
    tell("start", how=how)
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "abort":
        os.abort()
    elif how == "exit0":
        os._exit(0)
    elif how == "recursion":
        _deep()
    elif how == "sys.exit":
        sys.exit(3)
    elif how == "interrupt":
        raise KeyboardInterrupt
    else:
        while True:
            take(timedelta(hours=1).total_seconds())
