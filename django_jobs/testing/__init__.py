"""The test kit: run jobs inside a test, on its own connection and clock, by the code that workers run.

This room is for the tests of projects. Nothing of it is imported by the rest of the package, and it can be imported
before the apps are loaded and without pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_jobs.testing.clock import JobsClock
    from django_jobs.testing.downstream import Answer, FakeDownstream
    from django_jobs.testing.faults import JobsFaults, Pause
    from django_jobs.testing.history import Finding, History
    from django_jobs.testing.kit import JobsKit
    from django_jobs.testing.life import SimulatedCrash
    from django_jobs.testing.matrix import CrashMatrix
    from django_jobs.testing.matrix_report import CrashReport
    from django_jobs.testing.processes import WorkerProcess
    from django_jobs.testing.proxy import PostgresProxy
    from django_jobs.testing.receiver import FakeReceiver
    from django_jobs.testing.reports import AttemptReport, RunReport
    from django_jobs.testing.script import MalformedAnswerError
    from django_jobs.testing.views import JobView
    from django_jobs.testing.writes import RepeatableWriteWarning

_PLACES = {
    "Answer": "downstream",
    "AttemptReport": "reports",
    "CrashMatrix": "matrix",
    "CrashReport": "matrix_report",
    "FakeDownstream": "downstream",
    "FakeReceiver": "receiver",
    "Finding": "history",
    "History": "history",
    "JobsClock": "clock",
    "JobsFaults": "faults",
    "JobView": "views",
    "JobsKit": "kit",
    "MalformedAnswerError": "script",
    "Pause": "faults",
    "PostgresProxy": "proxy",
    "RepeatableWriteWarning": "writes",
    "RunReport": "reports",
    "SimulatedCrash": "life",
    "WorkerProcess": "processes",
}

__all__ = [
    "Answer",
    "AttemptReport",
    "CrashMatrix",
    "CrashReport",
    "FakeDownstream",
    "FakeReceiver",
    "Finding",
    "History",
    "JobView",
    "JobsClock",
    "JobsFaults",
    "JobsKit",
    "MalformedAnswerError",
    "Pause",
    "PostgresProxy",
    "RepeatableWriteWarning",
    "RunReport",
    "SimulatedCrash",
    "WorkerProcess",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
