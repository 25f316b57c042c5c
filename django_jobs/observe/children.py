"""The counts of a worker's children: each writes them into files of a private directory, which its death does not take.

A directory of the worker's own, whatever the project's environment says: in a shared one the files of dead children
would be read for ever, and the numbers of two workers or of web processes would mix.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from django_jobs.observe.families import merged

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def _read(files: list[str]) -> list[Metric]:
    return list(MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]


class Children:
    """The directory, and the sum of what ended children counted."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="django_jobs-metrics-"))
        self._lock = threading.Lock()
        self._past: list[Metric] = []

    def environment(self) -> dict[str, str]:
        """Return what makes prometheus-client write there; it has to be set before the client is imported."""
        return {VARIABLE: str(self.folder)}

    def ended(self, pid: int) -> None:
        """Add what a dead child counted to the past, and forget its gauges: what it was doing it does no more."""
        with self._lock:
            files = [path for path in self.folder.glob("*.db") if path.stem.rpartition("_")[2] == str(pid)]
            counted = [str(path) for path in files if not path.name.startswith("gauge_")]
            self._past = merged([*self._past, *_read(counted)])
            for path in files:
                path.unlink(missing_ok=True)

    def collect(self) -> list[Metric]:
        """Return what living and ended children have counted."""
        with self._lock:
            files = [str(path) for path in self.folder.glob("*.db")]
            return merged([*self._past, *_read(files)])

    def remove(self) -> None:
        """Remove the directory."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)
