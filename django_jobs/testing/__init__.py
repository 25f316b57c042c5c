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
    from django_jobs.testing.history import Finding, History
    from django_jobs.testing.kit import JobsKit
    from django_jobs.testing.receiver import FakeReceiver
    from django_jobs.testing.reports import AttemptReport, RunReport
    from django_jobs.testing.writes import RepeatableWriteWarning

_PLACES = {
    "Answer": "downstream",
    "AttemptReport": "reports",
    "FakeDownstream": "downstream",
    "FakeReceiver": "receiver",
    "Finding": "history",
    "History": "history",
    "JobsClock": "clock",
    "JobsKit": "kit",
    "RepeatableWriteWarning": "writes",
    "RunReport": "reports",
}

__all__ = [
    "Answer",
    "AttemptReport",
    "FakeDownstream",
    "FakeReceiver",
    "Finding",
    "History",
    "JobsClock",
    "JobsKit",
    "RepeatableWriteWarning",
    "RunReport",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
