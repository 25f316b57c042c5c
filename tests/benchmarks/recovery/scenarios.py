"""The faults: what is done to the workers and to the server, and what is noted of it while it is done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from tests.acceptance.workers import pass_time
from tests.benchmarks.recovery.judgement import Execution, Hit, is_stale_finish
from tests.benchmarks.recovery.stage import NAME, Stage

LONGEST = 0.3  # seconds: a normal job's own time, within which a fault's moment is drawn
GAP = 1.0  # seconds between faults, at least
CALM = 10.0  # seconds between faults, at most
TERMINATE = (
    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
    f"AND pid <> pg_backend_pid() AND application_name <> '{NAME}'"
)


def kill(stage: Stage, *, jobs: int, faults: int) -> dict[str, Any]:
    """kill -9 of a whole worker, with all that it started, at random moments while handlers run in it."""
    done = 0
    for _ in range(faults):
        stage.feed(jobs // faults)
        worker = stage.busy_worker()
        if worker is None:
            continue
        pass_time(stage.rng.uniform(0, LONGEST))
        _strike(stage, set(worker.pids()), worker.kill)
        done += 1
        worker.start()
        _calm_down(stage)
    return {"faults": done}


def kill_child(stage: Stage, *, jobs: int, faults: int) -> dict[str, Any]:
    """kill -9 of the one process that runs a handler; its parent, where there is one, lives."""
    done = 0
    for _ in range(faults):
        stage.feed(jobs // faults)
        worker = stage.busy_worker()
        if worker is None:
            continue
        pass_time(stage.rng.uniform(0, LONGEST))
        victims = stage.running(worker) or stage.running()
        if victims:
            pid = stage.rng.choice(victims).pid
            _strike(stage, {pid}, lambda pid=pid: _kill(pid))
            done += 1
        _calm_down(stage)
    return {"faults": done}


def connections(stage: Stage, *, jobs: int, faults: int) -> dict[str, Any]:
    """Every connection to the queue's database is ended by the server (pg_terminate_backend), while handlers run."""
    return _server_fault(stage, jobs, faults, lambda: stage.query(TERMINATE))


def restart(stage: Stage, *, jobs: int, faults: int) -> dict[str, Any]:
    """The server of the queue is stopped at once and started again (pg_ctl restart -m immediate), while handlers run."""
    return _server_fault(stage, jobs, faults, lambda: stage.cluster.restart(mode="immediate"))


def zombie(stage: Stage, *, jobs: int, faults: int) -> dict[str, Any]:
    """A worker stops (SIGSTOP) in the middle of a long job, until another has started the job anew, and goes on (SIGCONT)."""
    stage.feed(1, name="slow")
    first = _wait_start(stage, count=1, seconds=90)[0]
    worker = next(worker for worker in stage.workers if first.pid in worker.pids())
    pass_time(1.0)
    frozen = time.time()
    worker.signal(signal.SIGSTOP)
    others = [other for other in stage.workers if other is not worker]
    stage.workers[:], everyone = others, list(stage.workers)  # a stopped worker is no dead one
    taken = _wait_start(stage, count=2, seconds=stage.variant.settle)
    pass_time(1.0)
    worker.signal(signal.SIGCONT)
    stage.workers[:] = everyone
    closed = _watch_close(stage, seconds=60)
    found = [execution for execution in stage.witness.executions() if execution.key.startswith("slow")]
    owner = found[1] if len(found) > 1 else None
    return {
        "faults": 1,
        "taken_over_after": round(taken[1].started - frozen, 1) if len(taken) > 1 else None,
        "watched": stage.variant.settle,
        "stale_finish": owner is not None and is_stale_finish(closed, owner.returned),
        "closed": closed is not None,
    }


def poison(stage: Stage, *, jobs: int, faults: int) -> dict[str, Any]:
    """One job among normal ones ends its process by SIGKILL each time that it runs; workers are started again at once."""
    began = time.monotonic()
    stage.feed(jobs // 4)
    stage.feed(1, name="poison")
    stage.feed(jobs - jobs // 4)
    return {"faults": 1, "began": began}


def _server_fault(stage: Stage, jobs: int, faults: int, fault: Callable[[], object]) -> dict[str, Any]:
    done = 0
    for _ in range(faults):
        stage.feed(jobs // faults)
        if stage.busy_worker() is None:
            continue
        pass_time(stage.rng.uniform(0, LONGEST))
        _strike(stage, {pid for worker in stage.workers for pid in worker.pids()}, fault, deadly=False)
        done += 1
        _calm_down(stage)
    return {"faults": done}


def _strike(stage: Stage, pids: set[int], fault: Callable[[], object], *, deadly: bool = True) -> None:
    """Do it, and note how far each execution had come: read after its death where it died, at the fault where it lives."""
    met = {execution.id: execution for execution in stage.witness.executions(running=True) if execution.pid in pids}
    at = time.time()
    fault()
    if deadly:
        pass_time(0.1)  # what was sent before the death is done by then
        after = stage.witness.executions()
        met = {e.id: e for e in after if e.id in met or (e.pid in pids and e.returned is None)}
    stage.hits += [Hit(execution.id, execution.key, at, execution.phase, deadly) for execution in met.values()]


def _calm_down(stage: Stage) -> None:
    """Let what is not hit come to its end: recovery is to be measured, and not the length of a backlog."""
    stage.pass_time(GAP)
    ends = time.monotonic() + CALM - GAP
    while time.monotonic() < ends and stage.open_jobs() > len({hit.key for hit in stage.hits}):
        stage.pass_time(0.2)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _wait_start(stage: Stage, *, count: int, seconds: float) -> list[Execution]:
    ends = time.monotonic() + seconds
    while True:
        found = [execution for execution in stage.witness.executions() if execution.key.startswith("slow")]
        if len(found) >= count or time.monotonic() > ends:
            return found
        stage.pass_time(0.2)


def _watch_close(stage: Stage, *, seconds: float) -> float | None:
    """Return when no job was open any more, on the clock of the witness."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if stage.open_jobs() == 0:
            return time.time()
        stage.restart_dead()
        pass_time(0.05)
    return None


SCENARIOS: dict[str, tuple[Callable[..., dict[str, Any]], int, int]] = {
    # what is done, jobs, faults
    "kill": (kill, 200, 10),
    "kill-child": (kill_child, 200, 10),
    "zombie": (zombie, 1, 1),
    "connections": (connections, 96, 6),
    "restart": (restart, 60, 3),
    "poison": (poison, 20, 1),
}
