"""Back-pressure: a producer outside of jobs hears that a queue is full before it stores anything.

The depth of a queue is sampled, at most once per second and process, so a queue can grow past its capacity by what all
producers store within a second. Enqueues from inside a job are never refused: refusing them would hold back the work
that empties the queues.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.signals import setting_changed

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.enqueue.inside import current
from django_jobs.enqueue.prepared import Prepared
from django_jobs.exceptions import QueueFullError
from django_jobs.store.depth import Depth, queue_depth
from django_jobs.store.keys import key_holders

SAMPLED_EVERY = timedelta(seconds=1)
SHORTEST_WAIT = timedelta(seconds=1)
LONGEST_WAIT = timedelta(seconds=60)
KEYS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class _Sample:
    taken_at: datetime
    depth: Depth | None


class _Samples:
    """The last look at each queue. One thread looks while others go on with the look before."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew, with a lock that nobody holds: a forked child inherits both."""
        self._lock = threading.Lock()
        self._taken: dict[tuple[str, str], _Sample] = {}

    def depth(self, queue_name: str, *, limit: int, using: str) -> Depth | None:
        """Return the depth as of at most a second ago; None while the first look is under way in another thread."""
        place, now = (using, queue_name), clock.now()
        with self._lock:
            last = self._taken.get(place)
            if last is not None and abs(now - last.taken_at) < SAMPLED_EVERY:
                return last.depth
            self._taken[place] = _Sample(now, last.depth if last else None)
        found = queue_depth(queue_name, limit=limit, using=using)
        with self._lock:
            self._taken[place] = _Sample(now, found)
        return found


_samples = _Samples()
os.register_at_fork(after_in_child=_samples.forget)


def forget_samples() -> None:
    """Look at each queue anew: its rows were taken back, as after a test, or its capacity was changed."""
    _samples.forget()


def _forget(*, setting: str, **_: object) -> None:
    if setting == "DJANGO_JOBS":
        forget_samples()


setting_changed.connect(_forget, dispatch_uid="django_jobs.backpressure")


def admit(wanted: Sequence[Prepared]) -> None:
    """Refuse enqueues of one call for which their queue has no room; inside a job, count them and let them pass.

    A key that has a job already needs no room: its producer gets its answer from a full queue too.

    Raises:
        QueueFullError: Nothing was stored, and a transaction of the caller goes on.
    """
    queue_name, using = wanted[0].options.queue_name, wanted[0].using
    capacity = get_settings().queues.get(queue_name, {}).get("capacity")
    if capacity is None:
        return
    if current.get() is not None:
        telemetry.emit("enqueue.exempt", queue_name=queue_name, count=len(wanted))
        return
    depth = _samples.depth(queue_name, limit=capacity + 1, using=using)
    if depth is None or depth.waiting + len(wanted) <= capacity:
        return
    new = len(wanted) - _answered(wanted)
    if new and depth.waiting + new > capacity:
        telemetry.emit(
            "enqueue.refused",
            queue_name=queue_name,
            count=new,
            job_type=wanted[0].options.job_type,
            priority=wanted[0].options.priority,
        )
        raise _full(queue_name, capacity, new, depth)


def _answered(wanted: Sequence[Prepared]) -> int:
    """Count the enqueues that a live key will answer."""
    keyed = [item for item in wanted if item.key]
    live = 0
    for start in range(0, len(keyed), KEYS_AT_ONCE):
        part = keyed[start : start + KEYS_AT_ONCE]
        holders = key_holders(part[0].key_scope, [item.key for item in part], using=part[0].using)
        live += sum(holder.is_live for holder in holders.values())
    return live


def _full(queue_name: str, capacity: int, new: int, depth: Depth) -> QueueFullError:
    if new > capacity:
        msg = (
            f"{new} new jobs never fit into the queue {queue_name!r}, whose capacity is {capacity}. "
            "Nothing was stored; enqueue them in smaller parts."
        )
        return QueueFullError(msg)
    retry_after = min(max(depth.behind / 10, SHORTEST_WAIT), LONGEST_WAIT)
    told = f"{depth.waiting} jobs wait in it" if depth.waiting <= capacity else f"more than {capacity} jobs wait in it"
    msg = (
        f"The queue {queue_name!r} has no room for {new} more: {told}, and its capacity is {capacity}. "
        f"Nothing was stored; try again in {retry_after.total_seconds():.0f} s."
    )
    return QueueFullError(msg, retry_after=retry_after)
