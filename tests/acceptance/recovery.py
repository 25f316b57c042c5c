"""Killing inside handlers, and how long each hit job waited for its next attempt."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.acceptance.workers import Witness, WorkerProcess, pass_time, wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One kill: when, and which jobs it hit inside their handler."""

    at: float
    jobs: frozenset[str]


def kill_in_handler(worker: WorkerProcess, witness: Witness, rng: random.Random, *, group: bool = False) -> Kill:
    """Wait until a handler runs in this worker, wait a random moment more, and kill its child or the whole group."""
    pids = wait_for(lambda: _busy_pids(worker, witness), seconds=40, what=f"a busy child: {worker.text}")
    pass_time(rng.uniform(0, 0.08))
    at = time.monotonic()
    if group:
        pids = worker.child_pids
        worker.kill_group()
    else:
        worker.kill_child(pids[0])
        wait_for(lambda: pids[0] not in worker.child_pids, what="the child's death")
    hit = frozenset(line["job"] for line in witness.busy() if line["pid"] in pids[: None if group else 1])
    return Kill(at=at, jobs=hit)


def _busy_pids(worker: WorkerProcess, witness: Witness) -> list[int]:
    children = worker.child_pids
    return [line["pid"] for line in witness.busy() if line["pid"] in children]


def recoveries(kills: Iterable[Kill], witness: Witness) -> list[float]:
    """Return, for each job that a kill hit, the seconds from the kill to its next start."""
    starts = witness.lines("start")
    found = []
    for kill in kills:
        for job in kill.jobs:
            later = [line["at"] for line in starts if line["job"] == job and line["at"] > kill.at]
            if later:
                found.append(min(later) - kill.at)
    return found


def figures(what: str, seconds: list[float]) -> str:
    """Say how long recoveries took."""
    if not seconds:
        return f"{what}: no job was hit inside its handler"
    ordered = sorted(seconds)
    median = statistics.median(ordered)
    return f"{what}: {len(ordered)} recoveries, min {ordered[0]:.2f} s, median {median:.2f} s, max {ordered[-1]:.2f} s"
