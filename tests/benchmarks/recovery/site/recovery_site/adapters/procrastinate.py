"""Procrastinate: a task as documented, and the documented periodic task that retries stalled jobs."""

from __future__ import annotations

import os

from procrastinate.contrib.django import app

from recovery_site import work


@app.task(name="effect")
def effect(key: str) -> None:
    """The job."""
    work.perform(key, work.orm_row)


if os.environ.get("RECOVERY_CRON"):

    @app.periodic(cron=os.environ["RECOVERY_CRON"])
    @app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
    async def retry_stalled_jobs(context: object, timestamp: int) -> None:
        """Queue again what a dead worker held."""
        for job in await app.job_manager.get_stalled_jobs():
            await app.job_manager.retry_job(job)


def enqueue(keys: list[str]) -> None:
    """Enqueue one job per key."""
    for key in keys:
        effect.defer(key=key)
