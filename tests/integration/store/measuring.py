"""What a run of pruning costs, and what one of its statements reads."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection

from django_jobs.operate.prune import Pruned, prune
from django_jobs.store import prune as store_prune
from django_jobs.store.statements import load


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: what it took, the seconds of its slowest batch, and the most bytes that Python held meanwhile."""

    found: Pruned
    slowest: float
    peak: int


def measured_prune(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Prune all that is due, and measure it."""
    real, slowest = store_prune._take, [0.0]

    def timed(*arguments: Any) -> int:
        started = time.monotonic()
        taken = real(*arguments)
        slowest[0] = max(slowest[0], time.monotonic() - started)
        return taken

    monkeypatch.setattr(store_prune, "_take", timed)
    tracemalloc.start()
    found = prune(using="default")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Measured(found=found, slowest=slowest[0], peak=peak)


def blocks(name: str, params: dict[str, Any]) -> tuple[int, int]:
    """Return how many rows a statement returns, and how many pages of tables and indexes it reads; PostgreSQL only."""
    (text,) = load("postgresql", name)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", params)
        plan = cursor.fetchone()[0][0]["Plan"]
    return plan["Actual Rows"], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
