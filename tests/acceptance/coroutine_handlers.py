"""Coroutines that share the loop of their worker's process; loaded by workers alone."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from asgiref.sync import sync_to_async
from django.db import connection

from django_jobs import JobContext, RetryPolicy, job
from tests.acceptance.handlers import FAST, insert_row, tell

ONCE = RetryPolicy(base=timedelta(milliseconds=100), unknown_attempts=1)
_here = 0


@job(type="acceptance.met", retry=FAST, takes_context=True)
async def met(context: JobContext, n: int, many: int) -> None:
    """Wait until so many are here at once, ask for the sessions of this process, and leave."""
    global _here
    tell("start", n)
    _here += 1
    while _here < many:  # noqa: ASYNC110  they are of different jobs, which share nothing else
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.0)  # what nobody uses now is given back to the server meanwhile
    tell("met", n, sessions=await sync_to_async(_sessions)() if connection.vendor == "postgresql" else 0)
    async with context.acomplete():
        await sync_to_async(insert_row)(n)


def _sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@job(type="acceptance.waiting", retry=FAST, atomic=False)
async def waiting(n: int, seconds: float) -> None:
    """Wait, write a row, and be done."""
    tell("start", n)
    await asyncio.sleep(seconds)
    await sync_to_async(insert_row)(n)


@job(type="acceptance.copied", retry=FAST, atomic=False)
async def copied(n: int) -> None:
    """Make a copy of the process that comes back to the loop, as a library might that forks and fails to exec."""
    tell("start", n)
    copy = os.fork()
    if copy == 0:
        await asyncio.sleep(0)
        tell("awaited in a copy", n)
    else:
        _, status = await asyncio.to_thread(os.waitpid, copy, 0)
        tell("copy ended", n, code=os.waitstatus_to_exitcode(status))


@job(type="acceptance.ticking", retry=FAST, atomic=False)
async def ticking(n: int, ticks: int) -> None:
    """Tell of each of many turns of the loop."""
    for tick in range(ticks):
        tell("tick", n, tick=tick)
        await asyncio.sleep(0)


@job(type="acceptance.stubborn", retry=ONCE, atomic=False, budget=timedelta(seconds=1), cleanup=timedelta(seconds=3))
async def endless(n: int) -> None:
    """Wait for what never comes."""
    tell("start", n)
    await asyncio.Event().wait()
