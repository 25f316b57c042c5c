"""How one worker was started; travels from the supervisor to its children as JSON."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import IntEnum

from django_jobs.domain.served import Served


class Exit(IntEnum):
    """How a child or a worker ended, as its exit code."""

    CLEAN = 0
    FAILURE = 1
    USAGE = 2
    GRACE_EXCEEDED = 3
    RECYCLE = 64  # child only: code ran past its lease, or it has served long enough; a fresh process takes over
    NOT_STARTED = 65  # child only: its code could not be loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Times are in seconds here, because this crosses a process border."""

    worker_id: str
    name: str
    database: str
    queues: tuple[str, ...]  # empty: every queue in which something waits or for which a type is declared
    threads: int
    processes: int
    grace: float
    poll: float
    excluded: tuple[str, ...] = ()  # queues that it leaves out, when it serves every other one
    coroutines: int = 0  # coroutines on the loop of each child, beside its threads
    drain: bool = False
    recycle_jobs: int = 0  # a child is replaced after so many; 0: never, as for the next two
    recycle_age: float = 0.0
    recycle_memory: int = 0  # MiB
    heartbeat_file: str = ""  # where the supervisor tells that it lives; empty: nowhere
    child: int = 0  # number of the child process, counted up over the worker's life
    slot: int = 0  # place of the child, 0 … processes - 1; a replacement takes its predecessor's
    link: int = -1  # descriptor of the line to the supervisor
    bell: int = -1  # descriptor of the bell that the supervisor rings

    @property
    def uuid(self) -> uuid.UUID:
        """The worker's id."""
        return uuid.UUID(self.worker_id)

    @property
    def slots(self) -> int:
        """How many handlers one child runs at once."""
        return self.threads + self.coroutines

    @property
    def served(self) -> Served:
        """The queues that it serves."""
        return Served(names=self.queues, excluded=self.excluded)

    @property
    def grace_time(self) -> timedelta:
        """How long a stop waits for running handlers."""
        return timedelta(seconds=self.grace)

    def to_json(self) -> str:
        """Write for the command line of a child."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerConfig:
        """Read what :meth:`to_json` wrote."""
        values = json.loads(text)
        values |= {name: tuple(values[name]) for name in ("queues", "excluded")}
        return cls(**values)

    def for_child(self, *, child: int, slot: int, link: int, bell: int = -1) -> WorkerConfig:
        """Return the configuration of one child."""
        return replace(self, child=child, slot=slot, link=link, bell=bell)
