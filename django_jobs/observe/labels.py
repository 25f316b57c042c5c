"""Values of labels: few and known, so that no producer can make a series per job."""

from __future__ import annotations

import threading

from django_jobs.define import registry

OTHER = "other"
LIMIT = 100  # names of queues or effects that are not in the code, in one process


class Names:
    """Lets the first so many names through; all others are "other"."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the name, or "other"."""
        if name in self._known:
            return name
        with self._lock:
            if len(self._known) >= self._limit:
                return OTHER
            self._known.add(name)
        return name


def job_type(name: object) -> str:
    """Return the name of a registered job type (an alias counts as its type), else "other"."""
    definition = registry.find(str(name))
    return definition.job_type if definition is not None else OTHER


def band(priority: object) -> str:
    """Return the band of a priority: low below zero, high above."""
    if not isinstance(priority, int) or priority == 0:
        return "normal"
    return "high" if priority > 0 else "low"
