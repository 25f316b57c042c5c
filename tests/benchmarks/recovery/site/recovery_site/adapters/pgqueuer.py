"""pgqueuer: an entry point as its quick start has it; the work is blocking, so it goes to a thread.

``pgq run`` of 1.6.0 ends with an AttributeError beside Typer 0.29, so this file, run as a program, calls what that command calls,
with the command's own defaults.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.adapters.cli import supervisor
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from recovery_site import work


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    """Give what ``pgq run`` runs."""
    connection = await asyncpg.connect(os.environ["RECOVERY_DATABASE"])
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("effect")
    async def effect(job: Job) -> None:
        """The job."""
        await asyncio.to_thread(work.perform, (job.payload or b"").decode(), work.own_row)

    yield queuer
    await connection.close()


def enqueue(keys: list[str]) -> None:
    """Enqueue one job per key."""

    async def send() -> None:
        connection = await asyncpg.connect(os.environ["RECOVERY_DATABASE"])
        queries = Queries(AsyncpgDriver(connection))
        await queries.enqueue(["effect"] * len(keys), [key.encode() for key in keys], [0] * len(keys))
        await connection.close()

    asyncio.run(send())


if __name__ == "__main__":
    asyncio.run(
        supervisor.run(
            main,
            dequeue_timeout=timedelta(seconds=30),
            batch_size=10,
            restart_delay=timedelta(seconds=5),
            restart_on_failure=False,
            mode=QueueExecutionMode.continuous,
            max_concurrent_tasks=None,
            shutdown_on_listener_failure=False,
            heartbeat_timeout=timedelta(seconds=30),
        )
    )
