"""How things stand now, per queue: what waits and for how long, who works, what is held back, what needs a human."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.states import PauseKind
from django_jobs.models import Pause
from django_jobs.store.overview import Overview, Present, Waiting, overview


@dataclass(slots=True, kw_only=True)
class QueueStatus:
    """One queue. Counts stop at the limit of a look (see :class:`Status`); ages are None when nothing is due.

    ``retry_in`` is the time until the next retry is due (zero: it is). ``workers`` counts live workers that serve the
    queue and take jobs, ``silent`` those that stopped to say that they live.
    """

    name: str
    paused: Pause | None = None
    waiting: int = 0
    scheduled: int = 0
    retry: int = 0
    aside: int = 0
    running: int = 0
    expired: int = 0
    dead: int = 0
    dead_groups: int = 0
    oldest: timedelta | None = None
    retry_in: timedelta | None = None
    capacity: int | None = None
    workers: int = 0
    silent: int = 0

    @property
    def state(self) -> str:
        """``paused``, ``no worker`` (something waits and nobody serves it), ``full``, ``open``."""
        if self.paused is not None:
            return "paused"
        waits = self.waiting + self.scheduled + self.retry
        if waits and not self.workers:
            return "no worker"
        return "full" if self.capacity is not None and waits >= self.capacity else "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All queues, and what belongs to none. A count of ``limit`` means: so many or more."""

    now: datetime
    queues: tuple[QueueStatus, ...]
    paused_types: tuple[Pause, ...]
    effects: Sequence[Waiting]
    outbox: Sequence[Waiting]
    dead_deliveries: Sequence[Waiting]
    workers: Sequence[Present] = field(default=())
    limit: int = 0


_COUNTS = {
    "queued": "waiting",
    "behind": "waiting",
    "scheduled": "scheduled",
    "retry": "retry",
    "aside": "aside",
    "running": "running",
}


def status(*, using: str) -> Status:
    """Read how things stand, by a fixed number of bounded queries.

    Raises:
        DatabaseError: The database cannot be read.
    """
    found = overview(using=using)
    queues = {name: QueueStatus(name=name) for name in _names(found)}
    for queue in queues.values():
        queue.capacity = get_settings().queues.get(queue.name, {}).get("capacity")
        _add_workers(queue, found.workers)
    _add_groups(queues, found)
    for oldest in found.oldest:
        queue = queues[oldest.queue_name]
        queue.oldest = max(queue.oldest or timedelta(0), oldest.age)
    for pause in found.pauses:
        if pause.kind == PauseKind.QUEUE:
            queues[pause.name].paused = pause
    return Status(
        now=found.now,
        queues=tuple(queues[name] for name in sorted(queues)),
        paused_types=tuple(pause for pause in found.pauses if pause.kind == PauseKind.TYPE),
        effects=found.effects,
        outbox=found.pending,
        dead_deliveries=found.dead,
        workers=found.workers,
        limit=found.limit,
    )


def _names(found: Overview) -> Iterable[str]:
    declared = {definition.options.queue_name for _, definition in registry.definitions()}
    paused = {pause.name for pause in found.pauses if pause.kind == PauseKind.QUEUE}
    used = {group.queue_name for group in found.groups} | {oldest.queue_name for oldest in found.oldest}
    return declared | paused | used | set(get_settings().queues)


def _add_workers(queue: QueueStatus, workers: Iterable[Present]) -> None:
    serving = [worker for worker in workers if queue.name in worker.serves]
    queue.workers = sum(worker.live and not worker.stopping for worker in serving)
    queue.silent = sum(not worker.live for worker in serving)


def _add_groups(queues: dict[str, QueueStatus], found: Overview) -> None:
    for group in found.groups:
        queue = queues[group.queue_name]
        if group.stands == "dead_lettered":
            queue.dead += group.many
            queue.dead_groups += group.errors
            continue
        count = _COUNTS[group.stands]
        setattr(queue, count, getattr(queue, count) + group.many)
        queue.expired += group.expired
        if group.oldest is None:
            continue
        if group.stands in {"queued", "behind", "retry", "scheduled"} and group.oldest <= found.now:
            queue.oldest = max(queue.oldest or timedelta(0), found.now - group.oldest)
        if group.stands == "retry":
            wait = max(timedelta(0), group.oldest - found.now)
            queue.retry_in = wait if queue.retry_in is None else min(queue.retry_in, wait)
