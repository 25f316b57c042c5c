"""Runs cells one after the other in real workers, which follow a file that names the fault of the moment."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from django_jobs import batch, chain
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.models import Compensation, Job, SideEffect
from tests.acceptance.conftest import MakeWorker, count_rows
from tests.acceptance.workers import QUICK, Witness, WorkerProcess, wait_for
from tests.crash import handlers
from tests.crash.cells import FAULTS, Cell
from tests.crash.hits import AFTER, AT, Hit
from tests.crash.judging import judge, judge_all, judge_cancel, newest, was_too_slow
from tests.crash.waiting import Waiting
from tests.factories_compensation import compensate

FIRES_WITHIN = 120.0  # seconds
ENDS_WITHIN = 180.0  # a compensation has the default delays between attempts
TRIES = 3  # of a cell that failed for want of time
DONE = {"succeeded", "cancelled", "dead_lettered"}
QUEUES = {"narrow": {"limit": 4}}


@dataclass(slots=True, kw_only=True)
class Matrix:
    """The workers and the fault file of one test."""

    folder: Path
    make_worker: MakeWorker
    witness: Witness
    workers: int = 1
    threads: int = 1
    processes: int = 1
    short_lease: bool = False
    grace: int = 2
    ran: list[Cell] = field(default_factory=list)
    left_out: list[Cell] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _judgements: list[tuple[Cell, Callable[[], None]]] = field(default_factory=list)
    _limits: bool = False
    _stops: bool = False  # then there is one worker, which kills its frozen child by itself
    _running: list[WorkerProcess] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def _file(self) -> Path:
        return self.folder / "fault.json"

    def run(self, cell: Cell) -> None:
        """Run one cell and note how it went; the next one starts from sound workers."""
        if cell.why_not:
            self.left_out.append(cell)
            return
        began = time.monotonic()
        why = ""
        for _ in range(TRIES):
            why = self._tried(cell)
            if not why or not was_too_slow():
                break
            print(f"  again, because the machine was too slow for a call: {cell}", flush=True)
        self.ran.append(cell)
        print(f"  {'FAILED' if why else 'ok':6} {time.monotonic() - began:5.1f} s  {cell} -> {cell.code}", flush=True)
        if why:
            self.failed[str(cell)] = why
            print(why[:1500], flush=True)  # a run takes minutes, and its report comes last

    def _tried(self, cell: Cell) -> str:
        """Try one cell; returns what was wrong, and then the next one starts with new workers."""
        if (self._limits, self._stops) != (cell.scenario.limits, cell.scenario.stops):
            self._start_anew()
            self._limits, self._stops = cell.scenario.limits, cell.scenario.stops
        self.keep_running()
        try:
            self._run(cell, next(self._numbers))
        except AssertionError as error:
            why = f"{error}\n{newest()}\n{self.log()}"
            self._start_anew()
            return why
        return ""

    def report(self, *, least: int) -> None:
        """Print what was run, and fail with what did not go as the table says, or if less was run than is recorded."""
        self._judge_again()
        print(f"{len(self.ran)} cells run, {len(self.left_out)} not applicable, {len(self.failed)} failed")
        for cell in self.left_out:
            print(f"  not applicable: {cell}: {cell.why_not}")
        if self.failed:
            pytest.fail("\n\n".join(f"{name}: {why}" for name, why in self.failed.items()), pytrace=False)
        assert len(self.ran) >= least, f"{len(self.ran)} cells ran, {least} are recorded"

    def _run(self, cell: Cell, n: int) -> None:
        marker = self.folder / f"fired{n}.json"
        job_id = self._arm_and_enqueue(cell, n, marker)
        waiting = Waiting(job_id, seconds=ENDS_WITHIN)
        if cell.scenario.stops:
            wait_for(lambda: self._has_begun(n), seconds=FIRES_WITHIN, what="the handler")
            self._running[0].term()
        wait_for(marker.exists, seconds=FIRES_WITHIN, what="the fault to fire")
        hit = Hit(cell=cell, job_id=job_id, fired=json.loads(marker.read_text()), matrix=self)
        AT.get(cell.kind, Hit.leave)(hit)
        wait_for(lambda: self._is_done(job_id), seconds=ENDS_WITHIN, what="the end of the job")
        waiting.judge(Job.objects.get(pk=job_id).state)
        if cell.scenario.follows:
            wait_for(lambda: self._has_followed(n), seconds=ENDS_WITHIN, what="what follows")
        AFTER.get(cell.kind, Hit.leave)(hit)
        self._file.unlink()
        if cell.kind == "cancel":
            judgement = partial(judge_cancel, cell, job_id, n, witness=self.witness, told=hit.told)
        else:
            judgement = partial(judge, cell, job_id, n, witness=self.witness)
        judgement()
        judge_all()
        self._judgements.append((cell, judgement))

    def _judge_again(self) -> None:
        """See that nothing has changed since: what a fault left behind may have come after the end of the job."""
        for cell, judgement in self._judgements:
            try:
                judgement()
            except AssertionError as error:
                self.failed[str(cell)] = f"later: {error}"

    def _arm_and_enqueue(self, cell: Cell, n: int, marker: Path) -> Any:
        fault = Fault(point=cell.point, kind=FAULTS.get(cell.kind, cell.kind), marker=str(marker))
        draft = self._file.with_suffix(".new")
        draft.write_text(fault.to_json())
        draft.replace(self._file)
        return ENQUEUE.get(cell.scenario.name, _now(cell.scenario.name))(n)

    def _has_begun(self, n: int) -> bool:
        self.keep_running()  # the worker of the cell before was asked to stop, and may end only now
        return bool(self.witness.lines("start", n=n))

    def _is_done(self, job_id: Any) -> bool:
        self.keep_running()  # a fault that ended a whole worker leaves its work to the next one
        return Job.objects.filter(pk=job_id, state__in=DONE).exists()

    def _has_followed(self, n: int) -> bool:
        self.keep_running()
        return count_rows()[-n] > 0

    def keep_running(self) -> None:
        """Start workers for those that have ended."""
        self._running = [worker for worker in self._running if worker.is_running()]
        while len(self._running) < (1 if self._stops else self.workers):
            self._running.append(self._make().start().wait_ready(seconds=240))

    def _make(self) -> WorkerProcess:
        env = {
            "JOBS_IMPORTS": "tests.acceptance.handlers,tests.crash.handlers",
            "JOBS_QUEUES": json.dumps(QUEUES if self._limits else {}),
            VARIABLE: f"@{self._file}",
            **({"CRASH_SHORT_LEASE": "1"} if self.short_lease and not self._stops else {}),
        }
        return self.make_worker(
            threads=self.threads,
            processes=self.processes,
            times={**QUICK, "JOBS_GRACE": str(self.grace), "JOBS_MAX_CALL": "1"},
            env=env,
        )

    def stopped(self) -> WorkerProcess:
        """Return the worker that was asked to stop; with several, the one that ends."""
        if len(self._running) == 1:
            return self._running[0]
        return wait_for(lambda: next((w for w in self._running if not w.is_running()), None), what="a worker's end")

    def _start_anew(self) -> None:
        self._file.unlink(missing_ok=True)
        for worker in self._running:
            worker.kill_group()
        self._running.clear()

    def log(self) -> str:
        """Return the end of what the workers printed."""
        return "\n".join(worker.text[-9000:] for worker in self._running)


def _now(name: str) -> Callable[[int], Any]:
    return lambda n: getattr(handlers, name).enqueue(n=n).id


def _compensated(n: int) -> Any:
    """Let a job pay; return the job that takes it back."""
    paid = handlers.paying.enqueue(n=n).id
    wait_for(lambda: Job.objects.filter(pk=paid, state="succeeded").exists(), seconds=ENDS_WITHIN, what="the payment")
    compensate(SideEffect.objects.get(job_id=paid).pk)
    return Compensation.objects.get(original_job_id=paid).job_id


def _batched(n: int) -> Any:
    """Make a batch of one member, with a callback; return the member."""
    made = batch.enqueue([handlers.batched.prepare(n=n)], callback=handlers.following.prepare(n=n))
    return Job.objects.get(batch_id=made.id).pk


def _chained(name: str) -> Callable[[int], Any]:
    """Make a chain of two links; return the first."""

    def enqueue(n: int) -> Any:
        first = getattr(handlers, name).prepare(n=n)
        return chain(first, handlers.following.prepare(n=n)).enqueue().links[0].job_id

    return enqueue


ENQUEUE: dict[str, Callable[[int], Any]] = {
    "batched": _batched,
    "chained": _chained("chained"),
    "chained_plain": _chained("chained_plain"),
    "compensating": _compensated,
    "due": lambda n: handlers.row.using(run_after=timedelta(seconds=0.3)).enqueue(n=n).id,
}
