"""What a test does when a fault has fired, and when the job is done, for kinds that need more than the fault itself."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_jobs.exceptions import ActionChangedError, ActionRefusedError, RowBusyError
from django_jobs.models import Job
from django_jobs.operate.cancel import Cancel
from django_jobs.worker.config import Exit
from tests.acceptance.workers import NotInTimeError, state_of, wait_for
from tests.crash.table import BUSY, KEPT, OVER
from tests.factories_decisions import decided

if TYPE_CHECKING:
    from tests.crash.cells import Cell
    from tests.crash.harness import Matrix

STOPS_WITHIN = 20.0  # seconds
HEARS_WITHIN = 2.5  # seconds; the loop asks every 0.9 s
CALLED_WITHIN = 1.2  # seconds; longer than any call of the handlers may take


@dataclass(slots=True, kw_only=True)
class Hit:
    """A fault that has fired."""

    cell: Cell
    job_id: Any
    fired: dict[str, Any]
    matrix: Matrix
    told: str = ""  # what an operator was told

    def leave(self) -> None:
        """Do nothing."""

    def see_stop(self) -> None:
        """See the worker end cleanly."""
        code = self.matrix.stopped().wait(seconds=STOPS_WITHIN)
        assert code == Exit.CLEAN, f"the worker ended with {code}"
        self.matrix.keep_running()

    def thaw(self) -> None:
        """Let the frozen process go on."""
        with contextlib.suppress(ProcessLookupError):  # a worker that stops has killed it
            os.kill(self.fired["pid"], signal.SIGCONT)

    def open(self) -> None:
        """Let the thread go on that waits, if its process lives."""
        door = Path(f"{self.fired['marker']}.door")
        wait_for(
            lambda: _is_open(door) or state_of(self.fired["pid"]) in {"Z", ""}, seconds=10, what="the waiting thread"
        )

    def cancel(self) -> None:
        """Ask for the job to be cancelled, by another connection; the attempt hears it if it can."""
        self.told = _cancelled(self.job_id)
        if self.told == "running":
            with contextlib.suppress(NotInTimeError):
                heard = f"of job {self.job_id} is asked to end"
                wait_for(lambda: heard in self.matrix.log(), seconds=HEARS_WITHIN)
            # Whether it was heard before or after the deadline of a call would be chance.
            wait_for(lambda: time.monotonic() > self.fired["at"] + CALLED_WITHIN)
        self.open()


def _cancelled(job_id: Any) -> str:
    """Return the state that the operator was told, or why nothing was done."""
    try:
        done = decided(Cancel(Job.objects.get(pk=job_id).pk, using="default"), reason="nobody wants it any more")
    except RowBusyError:
        return BUSY
    except ActionRefusedError:
        return KEPT if Job.objects.get(pk=job_id).state == "running" else OVER
    except ActionChangedError:
        return OVER
    return str(done.details["state"])


def _is_open(door: Path) -> bool:
    try:
        os.close(os.open(door, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    return True


Act = Callable[[Hit], None]
AT: dict[str, Act] = {
    "term": Hit.see_stop,
    "cancel": Hit.cancel,
}
AFTER: dict[str, Act] = {"freeze": Hit.thaw, "delay": Hit.open}
