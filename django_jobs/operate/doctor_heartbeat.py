"""A look at a heartbeat file: what a worker told about itself, also while its database is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django_jobs.operate.alive import verdict_on
from django_jobs.operate.finding import Finding, info, warning


def heartbeat_looks(path: Path) -> Iterator[Finding]:
    """Tell the doctor what a heartbeat file says."""
    verdict = verdict_on(path)
    if verdict.ready:
        yield info("heartbeat-file", verdict.text)
    elif verdict.alive:
        yield warning("heartbeat-file", verdict.text, "A restart mends nothing here: look at the database, or wait.")
    else:
        yield warning("heartbeat-file", verdict.text, "Look at the worker's log, and start it again.")
