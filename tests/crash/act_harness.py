"""Runs acts one after the other: hits each in this process or in one of its own, and lets somebody try again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import InterfaceError, InternalError, OperationalError, connection

from django_jobs import faults
from django_jobs.faults.arming import VARIABLE, Fault
from django_jobs.faults.kinds import KINDS, InjectedError
from django_jobs.operate.verify import verify
from tests.acceptance.workers import ROOT, state_of, wait_for
from tests.crash.act_cells import HERE, ActCell
from tests.crash.acts import Act, Discarded, Once, Receive, Redispatched, Replayed
from tests.crash.pruning_acts import PrunedEvents, PrunedJobs, PrunedMessages

ERRORS = (InjectedError, OperationalError, InterfaceError, InternalError, CommandError)
STARTS_WITHIN = 60.0  # seconds
ACTS: dict[str, type[Act]] = {
    act.name: act
    for act in (Receive, Once, Replayed, Redispatched, Discarded, PrunedJobs, PrunedEvents, PrunedMessages)
}


@dataclass(slots=True, kw_only=True)
class ActMatrix:
    """The acts of one test."""

    folder: Path
    database_url: str
    ran: list[ActCell] = field(default_factory=list)
    left_out: list[ActCell] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: count(1))

    def run(self, cell: ActCell) -> None:
        """Run one cell and note how it went."""
        if cell.why_not:
            self.left_out.append(cell)
            return
        began, act = time.monotonic(), ACTS[cell.act](next(self._numbers))
        try:
            if cell.kind in HERE:
                self._here(cell, act)
            else:
                self._elsewhere(cell, act)
            act.judge()
            violated = [(item.invariant.name, item.ids) for item in verify(using="default").violated]
            assert violated == []
        except AssertionError as error:
            self.failed[str(cell)] = "".join(traceback.format_exception(error)[-3:])
        self.ran.append(cell)
        outcome = "FAILED" if str(cell) in self.failed else "ok"
        print(f"  {outcome:6} {time.monotonic() - began:5.1f} s  {cell} -> {'yes' if cell.done else 'no'}", flush=True)

    def report(self, *, least: int) -> None:
        """Print what was run, and fail with what did not go as the table says, or if less was run than is recorded."""
        print(f"{len(self.ran)} cells run, {len(self.left_out)} not applicable, {len(self.failed)} failed")
        for cell in self.left_out:
            print(f"  not applicable: {cell}: {cell.why_not}")
        if self.failed:
            pytest.fail("\n\n".join(f"{name}: {why}" for name, why in self.failed.items()), pytrace=False)
        assert len(self.ran) >= least, f"{len(self.ran)} cells ran, {least} are recorded"

    def _here(self, cell: ActCell, act: Act) -> None:
        nth = getattr(act, "nth", 1)
        with faults.armed(cell.point, KINDS[cell.kind], nth=nth) as fired, suppress(*ERRORS):
            act.do()
        assert fired(), "the fault did not fire"
        connection.close()  # as a web process does before its next request
        self._again(cell, act)

    def _again(self, cell: ActCell, act: Act) -> None:
        assert act.is_done() == cell.done
        act.again(done=cell.done)

    def _elsewhere(self, cell: ActCell, act: Act) -> None:
        marker = self.folder / f"fired{act.n}"
        fault = Fault(point=cell.point, kind=cell.kind, nth=getattr(act, "nth", 1), marker=str(marker))
        environment = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            VARIABLE: fault.to_json(),
        }
        command = [sys.executable, "-m", "tests.crash.program", *act.arguments]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                self._watch(cell, act, process)
            finally:
                process.kill()
        assert marker.exists(), "the fault did not fire"

    def _watch(self, cell: ActCell, act: Act, process: subprocess.Popen[str]) -> None:
        if cell.kind == "freeze":
            wait_for(
                lambda: state_of(process.pid) in {"T", ""}, seconds=STARTS_WITHIN, what="the process to stand still"
            )
            self._again(cell, act)  # while it stands; what it holds is let go by the server
            act.judge()
            process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=STARTS_WITHIN)
        if cell.kind != "freeze":
            wanted = {"kill": -signal.SIGKILL, "term": -signal.SIGTERM}[cell.kind]
            assert process.returncode == wanted, said
            self._again(cell, act)
        elif not cell.done and cell.point != "inbox.before_insert":  # there it holds nothing, and finds what was taken
            assert process.returncode != 0, f"it woke too late, and must be told so: {said}"
