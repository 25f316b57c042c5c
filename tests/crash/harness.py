"""Runs cells one after the other in real workers, which follow a file that names the fault of the moment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.models import Attempt, Compensation, Job, SideEffect
from django_jobs.operate.verify import verify
from tests.acceptance.conftest import MakeWorker, count_rows
from tests.acceptance.workers import QUICK, Witness, WorkerProcess, wait_for
from tests.crash import handlers
from tests.crash.cells import LATE, Cell
from tests.factories_compensation import compensate

FIRES_WITHIN = 15.0  # seconds
ENDS_WITHIN = 60.0  # a compensation has the default delays between attempts
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
        n = next(self._numbers)
        if (self._limits, self._stops) != (cell.scenario.limits, cell.scenario.stops):
            self._start_anew()
            self._limits, self._stops = cell.scenario.limits, cell.scenario.stops
        self._keep_running()
        began = time.monotonic()
        try:
            self._run(cell, n)
        except AssertionError as error:
            self.failed[str(cell)] = f"{error}\n{_newest()}\n{self._log()}"
            self._start_anew()
        self.ran.append(cell)
        outcome = "FAILED" if str(cell) in self.failed else "ok"
        print(f"  {outcome:6} {time.monotonic() - began:5.1f} s  {cell} -> {cell.code}", flush=True)

    def report(self, *, least: int) -> None:
        """Print what was run, and fail with what did not go as the table says, or if less was run than is recorded."""
        print(f"{len(self.ran)} cells run, {len(self.left_out)} not applicable, {len(self.failed)} failed")
        for cell in self.left_out:
            print(f"  not applicable: {cell}: {cell.why_not}")
        if self.failed:
            pytest.fail("\n\n".join(f"{name}: {why}" for name, why in self.failed.items()), pytrace=False)
        assert len(self.ran) >= least, f"{len(self.ran)} cells ran, {least} are recorded"

    def _run(self, cell: Cell, n: int) -> None:
        marker = self.folder / f"fired{n}.json"
        job_id = self._arm_and_enqueue(cell, n, marker)
        if cell.scenario.stops:
            wait_for(lambda: self.witness.lines("start", n=n), seconds=FIRES_WITHIN, what="the handler")
            self._running[0].term()
        wait_for(marker.exists, seconds=FIRES_WITHIN, what="the fault to fire")
        fired = json.loads(marker.read_text())
        if cell.kind == "term":
            assert self._stopped().wait(seconds=7) == 0, "a stop is a clean one"
            self._keep_running()
        wait_for(lambda: self._is_done(job_id), seconds=ENDS_WITHIN, what="the end of the job")
        if cell.kind == "freeze":
            with contextlib.suppress(ProcessLookupError):  # a worker that stops has killed it
                os.kill(fired["pid"], signal.SIGCONT)
        self._judge(cell, job_id, n)

    def _arm_and_enqueue(self, cell: Cell, n: int, marker: Path) -> Any:
        fault = Fault(point=cell.point, kind=cell.kind, marker=str(marker))
        draft = self._file.with_suffix(".new")
        draft.write_text(fault.to_json())
        draft.replace(self._file)
        return ENQUEUE.get(cell.scenario.name, _now(cell.scenario.name))(n)

    def _is_done(self, job_id: Any) -> bool:
        self._keep_running()  # a fault that ended a whole worker leaves its work to the next one
        return Job.objects.filter(pk=job_id, state__in=DONE).exists()

    def _judge(self, cell: Cell, job_id: Any, n: int) -> None:
        self._file.unlink()
        story = _story(job_id)
        assert Job.objects.get(pk=job_id).state == cell.scenario.state, story
        attempts = Attempt.objects.filter(job_id=job_id).order_by("number")
        found = tuple(attempts.values_list("outcome", flat=True))
        assert found == cell.scenario.attempts(cell.code), f"expected {cell.scenario.attempts(cell.code)}: {story}"
        assert count_rows()[n] == cell.scenario.row, f"{count_rows()[n]} business rows"
        assert len(self.witness.lines("applied", n=n)) == cell.scenario.effects, "effects of the provider"
        assert len(self.witness.lines("applied", n=-n)) == cell.scenario.returns, "effects that were taken back"
        if cell.code == LATE:
            wait_for(lambda: self._was_refused(job_id), seconds=10, what="the refusal")
        else:
            assert not self._was_refused(job_id), f"nothing was too late here: {story}"
        violated = [(item.invariant.name, item.ids) for item in verify(using="default").violated]
        assert violated == []

    def _was_refused(self, job_id: Any) -> bool:
        return Attempt.objects.filter(job_id=job_id, refused_count__gt=0).exists()

    def _keep_running(self) -> None:
        self._running = [worker for worker in self._running if worker.is_running()]
        while len(self._running) < (1 if self._stops else self.workers):
            self._running.append(self._make().start().wait_ready())

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

    def _stopped(self) -> WorkerProcess:
        """Return the worker that was asked to stop; with several, the one that ends."""
        if len(self._running) == 1:
            return self._running[0]
        return wait_for(lambda: next((w for w in self._running if not w.is_running()), None), what="a worker's end")

    def _start_anew(self) -> None:
        self._file.unlink(missing_ok=True)
        for worker in self._running:
            worker.kill_group()
        self._running.clear()

    def _log(self) -> str:
        return "\n".join(worker.text[-9000:] for worker in self._running)


def _now(name: str) -> Callable[[int], Any]:
    return lambda n: getattr(handlers, name).enqueue(n=n).id


def _compensated(n: int) -> Any:
    """Let a job pay; return the job that takes it back."""
    paid = handlers.paying.enqueue(n=n).id
    wait_for(lambda: Job.objects.filter(pk=paid, state="succeeded").exists(), seconds=ENDS_WITHIN, what="the payment")
    compensate(SideEffect.objects.get(job_id=paid).pk)
    return Compensation.objects.get(original_job_id=paid).job_id


ENQUEUE: dict[str, Callable[[int], Any]] = {
    "compensating": _compensated,
    "due": lambda n: handlers.row.using(run_after=timedelta(seconds=0.3)).enqueue(n=n).id,
}


def _newest() -> str:
    return _story(Job.objects.latest("created_at", "id").pk)


def _story(job_id: Any) -> str:
    """Tell the job and its attempts as they stand."""
    job = Job.objects.get(pk=job_id)
    told = Attempt.objects.filter(job_id=job_id).order_by("number")
    attempts = [(a.number, a.outcome, a.error_type, a.message[:100], a.loss_cause, a.refused_count) for a in told]
    return f"{job.state} {attempts}"
