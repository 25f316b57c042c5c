"""When a child has served long enough: after so many jobs, so much time, or above so much memory."""

from __future__ import annotations

import logging
import random
from pathlib import Path

from django_jobs import clock
from django_jobs.worker.config import WorkerConfig

logger = logging.getLogger("django_jobs.worker")

LOOK_EVERY = 1.0  # seconds between two looks at the memory
SPREAD = 0.1  # children that started together do not all end together: each serves up to a tenth less
MIB = 1024 * 1024
_STATUS = Path("/proc/self/status")


class Wear:
    """Counts what one child has done. A limit of 0 is none."""

    def __init__(self, config: WorkerConfig) -> None:
        part = 1.0 - SPREAD * random.random()  # noqa: S311  spreads load, guards nothing
        self._most_jobs = max(1, round(config.recycle_jobs * part)) if config.recycle_jobs else 0
        self._longest = config.recycle_age * part
        self._most_memory = config.recycle_memory * MIB
        self._began = clock.boot_seconds()
        self._looked_at = self._began
        self._jobs = 0
        if self._most_memory and memory() is None:
            logger.warning("This system does not tell how much memory a process has: --recycle-memory has no effect")

    def note_job(self) -> None:
        """Count one more."""
        self._jobs += 1

    def reason(self) -> str:
        """Say in plain English why the child should be replaced; empty: it should not."""
        if self._most_jobs and self._jobs >= self._most_jobs:
            return f"it has started {self._jobs} jobs"
        now = clock.boot_seconds()
        if self._longest and now - self._began >= self._longest:
            return f"it has served for {now - self._began:.0f} s"
        if self._most_memory and now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            found = memory()
            if found is not None and found > self._most_memory:
                return f"it uses {found // MIB} MiB of memory"
        return ""


def memory() -> int | None:
    """Return how many bytes of memory this process has now; None where the system does not tell (not Linux)."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("VmRSS:")), "")
    return int(found.split()[1]) * 1024 if found else None
