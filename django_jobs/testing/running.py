"""What a worker does, one step at a time in the thread of the test: claim, run, take back, deliver."""

from __future__ import annotations

import contextvars
import functools
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django_jobs import clock
from django_jobs.conf import get_settings
from django_jobs.define import registry
from django_jobs.domain.lanes import ASIDE, kind_text
from django_jobs.exceptions import KitError
from django_jobs.models import Attempt, Delivery, Job, Worker
from django_jobs.operate.batch_runner import close_batches
from django_jobs.outbox.destinations import is_local, known_destinations, routes
from django_jobs.outbox.dispatcher import Dispatcher
from django_jobs.outbox.publisher import Publisher
from django_jobs.store.pauses import paused
from django_jobs.store.resources import stands, waiting_lanes
from django_jobs.store.subscriptions import announce
from django_jobs.store.turns import settle_turns, stale
from django_jobs.store.waiting import known_queues
from django_jobs.store.workers import WorkerRecord, register
from django_jobs.testing.lending import lent
from django_jobs.testing.mortal import mortal
from django_jobs.testing.reports import AttemptReport
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.awaited import awaited
from django_jobs.worker.claiming import Claimer
from django_jobs.worker.config import WorkerConfig
from django_jobs.worker.connection import drop
from django_jobs.worker.execute import execute
from django_jobs.worker.sweep import Sweep

T = TypeVar("T")

NAME = "test kit"
TURNS = 1000  # of a dispatcher, for what is due at one moment
WAITING = ("scheduled", "queued", "failed")


def _claimer(using: str) -> Claimer:
    """Return a child that has seen nothing yet: it looks again at everything, as the test's clock may have moved."""
    return Claimer(
        WorkerConfig(
            worker_id=str(uuid.uuid4()),
            name=NAME,
            database=using,
            queues=(),
            threads=1,
            processes=1,
            grace=0,
            poll=1,
        )
    )


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of a worker came to: the attempts that ended; ``has_died`` if its process did."""

    reports: tuple[AttemptReport, ...] = ()
    has_died: bool = False
    worker_id: uuid.UUID | None = None

    @property
    def did_something(self) -> bool:
        """Whether it may be worth to look for more."""
        return bool(self.reports) or self.has_died


def run_due(using: str) -> Turn:
    """Claim the job that is first now and run its attempt to the end, or until its process dies.

    Raises:
        KitError: The end of the attempt could not be recorded.
        BaseException: What the handler met was meant for the test run, as Ctrl-C is; its attempt is recorded.
    """
    claimer = _claimer(using)
    found: list[RunningAttempt] = []
    with mortal(using) as run:
        run.worker_id = claimer.config.uuid
        settle_turns(stale(using=using), using=using)  # as the maintenance of a worker does
        found += _twice(lambda: claimer.take(1, 0), using)  # the second one gives back what the first may have got
        for attempt in found:
            heard = _listen(attempt)
            contextvars.copy_context().run(execute, attempt)  # language and time zone of the test stay
            if heard and not run.is_dead:
                raise heard[0]
    if run.is_dead:
        beat_once(claimer.config.uuid, using=using)
    with lent(using):
        reports = [_report(attempt.attempt_id, using, may_be_open=run.is_dead) for attempt in found]
    return Turn(tuple(report for report in reports if report is not None), run.is_dead, run.worker_id)


def _twice(action: Callable[[], T], using: str) -> T:
    """Do it once more after an error, on a new connection, as a worker does in its next turn."""
    try:
        return action()
    except Exception:  # noqa: BLE001  as there; one that comes again is raised
        drop(using)
        return action()


def _listen(attempt: RunningAttempt) -> list[BaseException]:
    """Return where what ends the test run is put when the handler meets it.

    A worker's thread gets nothing of that kind. Here it would end one attempt, and the next one would run, and hang.
    """
    heard: list[BaseException] = []
    func = attempt.definition.func

    @functools.wraps(func)
    def listened(*args: Any, **kwargs: Any) -> Any:
        try:
            return awaited(attempt, func(*args, **kwargs))
        except BaseException as error:
            if _ends_the_run(error):
                heard.append(error)
            raise

    attempt.definition = replace(attempt.definition, func=listened)
    return heard


def _ends_the_run(error: BaseException) -> bool:
    """Say whether it is Ctrl-C, or an outcome of pytest: a time-out, a skip."""
    outcome = any(kind.__module__.startswith("_pytest.") for kind in type(error).__mro__)
    return outcome or isinstance(error, KeyboardInterrupt)


def lose_due(using: str) -> RunningAttempt:
    """Claim the job that is first now for a worker that dies before it begins.

    Raises:
        KitError: No job is due.
    """
    with lent(using):
        claimer = _claimer(using)
        found = claimer.take(1, 0)
        if not found:
            msg = "No job is due that could be lost."
            raise KitError(msg)
    beat_once(claimer.config.uuid, using=using)
    return found[0]


def beat_once(worker_id: uuid.UUID, *, using: str) -> None:
    """Write the last heartbeat of a worker whose process has just died or stands still: it is silent from now on."""
    record = WorkerRecord(
        worker_id=worker_id,
        name=NAME,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=[],
        job_types=[],
        threads=1,
        processes=1,
        code_version="",
    )
    with lent(using):
        register(record, using=using)


def take_back(using: str) -> Turn:
    """Take back what a worker would: attempts of silent workers, and those whose lease is over."""
    running: list[uuid.UUID] = []
    with mortal(using) as run:
        running += Attempt.objects.using(using).filter(outcome__isnull=True).values_list("pk", flat=True)
        if running:
            _twice(lambda: Sweep(using).go_on(lambda: True), using)
    with lent(using):
        closed = (
            Attempt.objects.using(using).filter(pk__in=running, outcome__isnull=False).order_by("finished_at", "pk")
        )
        reports = [_report(pk, using) for pk in closed.values_list("pk", flat=True)]
    return Turn(tuple(report for report in reports if report is not None), run.is_dead)


def close_left(using: str) -> bool:
    """Close the batches that nobody has closed, as every worker does every few seconds; False when there is none."""
    closed: list[int] = []
    with mortal(using) as run:
        closed.append(close_batches(using=using))
    return run.is_dead or any(closed)


def last_of(worker_id: uuid.UUID | None, *, using: str) -> AttemptReport | None:
    """Report the last attempt of a worker as it stands, whether or not it has ended; None if it claimed nothing."""
    if worker_id is None:
        return None
    with lent(using):
        attempts = Attempt.objects.using(using).select_related("job__payload").filter(worker_id=worker_id)
        found = attempts.order_by("-started_at").first()
        return AttemptReport.of(found) if found is not None else None


def _report(attempt_id: uuid.UUID, using: str, *, may_be_open: bool = False) -> AttemptReport | None:
    attempt = Attempt.objects.using(using).select_related("job__payload").filter(pk=attempt_id).first()
    if attempt is None:
        msg = "The rows of a job are gone: its handler deleted them, or ended the transaction of the test."
        raise KitError(msg)
    if attempt.outcome is None and may_be_open:
        return None
    if attempt.outcome is None:
        msg = f"The end of {attempt} could not be recorded; the log of django_jobs.worker tells why."
        raise KitError(msg)
    return AttemptReport.of(attempt)


def announce_routes(using: str) -> None:
    """Tell the database where events go, as a worker does when it starts; publishing asks the database."""
    if known := routes():
        announce(known, using=using)


def dispatch_due(using: str, publishers: Mapping[str, Publisher]) -> datetime | None:
    """Deliver every event that is due to subscribers here and to ``publishers``; nothing is sent anywhere else.

    Returns:
        When a delivery becomes due next.

    Raises:
        KitError: Deliveries do not come to rest.
    """
    served = [name for name in known_destinations() if is_local(name) or name in publishers]
    if not served:
        return None
    with mortal(using) as run:
        dispatcher = Dispatcher(worker_id=uuid.uuid4(), using=using, publishers=publishers)
        dispatcher.destinations = served
        for _ in range(TURNS):
            wait = _twice(dispatcher.turn, using)
            if wait is None or wait > 0:
                return _next_delivery(wait, served, using)
    if run.is_dead:
        return clock.now()
    msg = f"Deliveries to {', '.join(served)} did not come to rest in {TURNS} turns."
    raise KitError(msg)


def _next_delivery(wait: float | None, served: list[str], using: str) -> datetime | None:
    """Return when a delivery is due, or one can be taken back from a dispatcher that died with it."""
    held = Delivery.objects.using(using).filter(state="claimed", destination__in=served)
    ends = held.values_list("lease_expires_at", flat=True)
    moments = [over + timedelta(microseconds=1) for over in ends if over is not None]
    if wait is not None:
        moments.append(clock.now() + timedelta(seconds=wait))
    return min(moments, default=None)


def next_due(using: str, *, since: datetime | None = None) -> datetime | None:
    """Return when a job of this code becomes due, or a lost attempt can be taken back; None when nothing waits.

    Args:
        using: The database.
        since: When somebody last looked for what is due; default: now. What became due after that was not seen then.
    """
    with lent(using):
        moments = [_next_job(using, since or clock.now()), _next_loss(using), _next_room(using)]
    return min((moment for moment in moments if moment is not None), default=None)


def _next_job(using: str, since: datetime) -> datetime | None:
    held = paused(using=using)
    kinds = {kind for kind in registry.kinds() if held.allows(kind)}
    waiting = Job.objects.using(using).filter(state__in=WAITING, available_at__gt=since)
    waiting = waiting.exclude(lane__startswith=ASIDE).exclude(resource__in=held.resources)
    for job in waiting.exclude(queue_name__in=held.queues).order_by("available_at", "pk").iterator():
        if kind_text(job.job_type, job.payload_version) in kinds:
            return job.available_at
    return None


def _next_room(using: str) -> datetime | None:
    """Return when time alone makes room in a resource for which a job waits."""
    held = paused(using=using)
    lanes = waiting_lanes(held.open_queues(known_queues(using=using)), using=using)
    waits = [
        stand.opens_in for stand in stands({lane.resource for lane in lanes} - held.resources, using=using).values()
    ]
    seconds = min((wait for wait in waits if wait is not None and wait > 0), default=None)
    return None if seconds is None else clock.now() + timedelta(seconds=seconds)


def _next_loss(using: str) -> datetime | None:
    rules = get_settings()
    moments = []
    for job in Job.objects.using(using).filter(state="running"):
        over = (job.lease_expires_at or clock.now()) + rules.expired_patience + timedelta(microseconds=1)
        worker = Worker.objects.using(using).filter(pk=job.lease_owner or uuid.UUID(int=0)).first()
        moments.append(min(over, worker.heartbeat_at + rules.silent_after) if worker else clock.now())
    return min(moments, default=None)
