"""The port through which a worker shows how it is: metrics and health over HTTP. What serves it is another room.

``django_jobs.observe`` puts its own maker here when the apps are ready; without one a worker shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.heartbeat_file import Told


class Outlet(Protocol):
    """What a supervisor asks of whoever shows how its worker is. No method waits for a database."""

    def environment(self) -> Mapping[str, str]:
        """Return what children need in their environment to be seen."""

    def start(self, look: Callable[[], Told | None]) -> None:
        """Begin to answer; ``look`` returns what the supervisor told last, from any thread."""

    def child_ended(self, pid: int) -> None:
        """Keep what a child counted, and forget what it was doing."""

    def stop(self) -> None:
        """End, and leave nothing behind."""


Make = Callable[[WorkerConfig, str, int], Outlet]


class _Port:
    """Holds the makers that the room above put here."""

    def __init__(self) -> None:
        self.make: Make | None = None  # config, address, port; raises OSError when it cannot listen there
        self.text: Callable[[str], str] | None = None  # all metrics of a database alias, in Prometheus's text format


port = _Port()
