"""One dispatcher: claims due deliveries per destination, has them published, and records each answer.

It holds no lock and no transaction while a publisher works. Everything it records is proved by the attempt that its
claim opened, so that any number of dispatchers may work at once and each of them may die anywhere.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

from django.db import InterfaceError, InternalError, OperationalError

from django_jobs import clock, faults, telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.deliveries import Following, after_report, is_down, pause_after
from django_jobs.domain.events import Confirmed, Error, Nacked, Report
from django_jobs.domain.lines import indented, one_line
from django_jobs.domain.states import Alone, DeliveryOutcome, DeliveryState
from django_jobs.outbox.answers import told, well_formed
from django_jobs.outbox.destinations import is_local, known_destinations, make_publisher, routes, subscriber_of
from django_jobs.outbox.local import deliver
from django_jobs.outbox.losses import take_back_expired, tell_of_dead
from django_jobs.outbox.publisher import Publisher
from django_jobs.store.breakers import give_probe_back, note_down, note_up, take_probe
from django_jobs.store.deliveries import (
    ClaimedDelivery,
    Outlook,
    Settlement,
    claim_deliveries,
    look_at_destinations,
    mark_published,
    settle,
    sweep,
)
from django_jobs.store.subscriptions import announce

logger = logging.getLogger("django_jobs.outbox")

BATCH = 100  # deliveries of one destination that are claimed at once
SHORTEST_MARGIN = timedelta(seconds=2)  # of a lease beyond the time that a publisher has; at least a third of it
SWEEP_EVERY = 5.0  # seconds between two walks over the ordering keys
SWEEP_KEYS = 500  # ordering keys of one step of a walk
SWEEP_SLICE = 0.05  # seconds that a walk may take before something else is done
ATTEMPTS_AT_ONCE = 5  # batches of one destination before the others have their turn

SUSPECTS_AT_ONCE = 100  # deliveries that go alone, one after another, before jobs may run beside the dispatcher again
SUSPECTS_FOR = 15.0  # seconds that this may take before no further one is begun
BEGIN_AGAIN = 0.5  # seconds until it is tried again to begin what had to wait for jobs of this process

Guard = Callable[[], AbstractContextManager[object]]
Enter = Callable[[bool], AbstractContextManager["Alone | None"]]


def _always(suspect: bool) -> AbstractContextManager[Alone | None]:
    return nullcontext(Alone.WORKER if suspect else Alone.NO)


class Dispatcher:
    """The work of one thread. ``guarded`` makes a block for database calls, in which the caller bounds them.

    ``delivering`` makes a block for deliveries, of suspects or of all others; it yields how much company they have in
    their process, or None when they must not begin now.
    ``publishers`` are those that are made already, by the names of their destinations.
    """

    def __init__(
        self,
        *,
        worker_id: uuid.UUID,
        using: str,
        child: int = 0,
        guarded: Guard = nullcontext,
        delivering: Enter = _always,
        publishers: Mapping[str, Publisher] | None = None,
    ) -> None:
        self.using = using
        self.destinations = known_destinations()
        self._worker_id = worker_id
        self._child = child
        self._delivering = delivering
        self._guarded = guarded
        self._publishers: dict[str, Publisher] = dict(publishers or {})
        self._unrecorded: list[tuple[ClaimedDelivery, Report]] = []  # answers that the database did not take yet
        self._swept_at = float("-inf")
        self._sweep_after: dict[str, str] = {}
        self._announced = False
        self._kept_waiting = False  # something is due that may not begin beside what runs in this process
        self._working = False
        self.stopping: Callable[[], bool] = lambda: False

    def turn(self) -> float | None:
        """Do what is due, once; returns in how many seconds something becomes due here, None when nothing waits.

        Raises:
            DatabaseError: The database did not do its part; answers that were got are kept and recorded later.
        """
        self._working = True
        try:
            return self._turn()
        finally:
            self._working = False

    def _turn(self) -> float | None:
        with self._guarded():
            self._announce()
            self._record_again()
            outlooks = look_at_destinations(self.destinations, using=self.using)
        if any(outlook.some_lost for outlook in outlooks):
            with self._guarded():
                taken_back = take_back_expired(using=self.using)
            if taken_back:
                return 0.0
        swept, self._kept_waiting = self._sweep(outlooks), False
        served = [self._serve(outlook) for outlook in outlooks if not self.stopping()]
        if swept or any(served):
            return 0.0
        due = _next_due(outlooks)
        return max(due, BEGIN_AGAIN) if self._kept_waiting and due is not None else due

    def is_nothing_left(self) -> bool:
        """Say whether nothing waits for a destination of this process, nor is on its way from here.

        What waits for a destination that is down does not count: that may take for ever.
        """
        with self._guarded():
            outlooks = look_at_destinations(self.destinations, using=self.using)
        left = any(_waits_for(outlook) and not outlook.failures for outlook in outlooks)
        return not left and not self._working and not self._unrecorded  # asked after the look: a turn may have claimed

    def close(self) -> None:
        """Let go of the publishers' connections."""
        for name, publisher in self._publishers.items():
            try:
                publisher.close()
            except Exception:
                logger.exception("The publisher of %s could not be closed", name)
        self._publishers.clear()

    def _announce(self) -> None:
        if self._announced:
            return
        for route in announce(routes(), using=self.using):
            logger.warning(
                "The subscription of %s to %s v%s was ended; 'manage.py jobs subscriptions sync' renews it",
                route.destination,
                route.event_type,
                route.version,
            )
        self._announced = True

    def _serve(self, outlook: Outlook) -> bool:
        """Deliver to one destination what is due, suspects first; returns whether something was claimed."""
        name = outlook.destination
        if is_local(name) and subscriber_of(name) is None:
            return False
        served = False
        for suspects in (True, False):
            if outlook.suspect_is_due if suspects else outlook.is_due:
                with self._delivering(suspects) as alone:
                    if alone is None:
                        self._kept_waiting = True
                    else:
                        served = self._serve_some(outlook, alone, suspects=suspects) or served
        return served

    def _serve_some(self, outlook: Outlook, alone: Alone, *, suspects: bool) -> bool:
        name, lease = outlook.destination, _lease()
        if outlook.failures:
            with self._guarded():
                if not take_probe(name, pause=lease, using=self.using):
                    return False
        room = 1 if outlook.failures or suspects else BATCH
        ends_at = clock.boot_seconds() + SUSPECTS_FOR
        for _ in range(SUSPECTS_AT_ONCE if suspects else ATTEMPTS_AT_ONCE):
            asked_at = clock.boot_seconds()
            batch = self._claim(name, room, alone, suspects=suspects)
            if not batch:
                if outlook.failures:  # others had claimed what was due
                    with self._guarded():
                        give_probe_back(name, using=self.using)
                return False
            down = self._deliver(outlook, batch, asked_at)
            if down or outlook.failures or len(batch) < room or self.stopping() or clock.boot_seconds() > ends_at:
                break
        return True

    def _claim(self, name: str, room: int, alone: Alone, *, suspects: bool) -> list[ClaimedDelivery]:
        with self._guarded():
            return claim_deliveries(
                name,
                [uuid.uuid4() for _ in range(room)],
                worker_id=self._worker_id,
                child=self._child,
                lease=_lease(),
                suspects=suspects,
                alone=alone,
                using=self.using,
            )

    def _deliver(self, outlook: Outlook, batch: Sequence[ClaimedDelivery], asked_at: float) -> bool:
        """Deliver one batch and record the answers; returns whether the destination is down."""
        if is_local(outlook.destination):
            self._deliver_here(batch)
            return False
        late = clock.boot_seconds() - asked_at > _margin().total_seconds() / 2
        if late or self.stopping():
            with self._guarded():
                self._release(batch)  # a publisher that began now could still be at it when the lease is over
            return False
        faults.reached("dispatch.before_publish", using=self.using)
        reports = self._publish(outlook.destination, batch)
        answered = list(zip(batch, reports, strict=True))
        self._unrecorded += answered
        faults.reached("dispatch.after_publish", using=self.using)
        with self._guarded():
            self._record_again()
            if is_down(reports):
                self._note_down(outlook, reports)
            elif outlook.failures:
                note_up(outlook.destination, using=self.using)
        return is_down(reports)

    def _deliver_here(self, batch: Sequence[ClaimedDelivery]) -> None:
        try:
            with self._guarded():
                refused = deliver(batch, using=self.using)
        except Exception as error:  # noqa: BLE001  one event must not stop the others
            if isinstance(error, OperationalError | InterfaceError | InternalError) or len(batch) == 1:
                self._not_delivered(batch, error)
                return
            logger.warning(
                "A batch of %s deliveries failed (%s); trying them one by one", len(batch), type(error).__name__
            )
            for item in batch:
                self._deliver_here([item])
            return
        self._unrecorded += refused
        with self._guarded():
            self._record_again()

    def _not_delivered(self, batch: Sequence[ClaimedDelivery], error: Exception) -> None:
        """Give back what the database could not take now; count what it refuses against the event.

        Raises:
            DatabaseError: The database is away.
        """
        if isinstance(error, OperationalError | InterfaceError | InternalError):
            with self._guarded():
                self._release(batch)
            raise error
        logger.error("A subscriber's job could not be stored: %s", indented(told(error)))
        refusal = Nacked(f"The job could not be stored: {type(error).__name__}.")
        self._unrecorded += [(item, refusal) for item in batch]
        with self._guarded():
            self._record_again()

    def _publish(self, name: str, batch: Sequence[ClaimedDelivery]) -> list[Report]:
        began = clock.boot_seconds()
        reports = self._reports(name, batch)
        wishes = [report.retry_after for report in reports if isinstance(report, Error) and report.retry_after]
        telemetry.emit(
            "publisher.done",
            destination=name,
            count=len(batch),
            seconds=clock.boot_seconds() - began,
            retry_after=max(wishes, default=None),
        )
        return reports

    def _reports(self, name: str, batch: Sequence[ClaimedDelivery]) -> list[Report]:
        seconds = get_settings().delivery_timeout.total_seconds()
        try:
            if name not in self._publishers:
                self._publishers[name] = make_publisher(name)
            # Inside the block: what is no list is an error like any other, and so is one while an iterator is read.
            reports = list(self._publishers[name].publish_batch([item.parcel for item in batch], seconds=seconds))
        except BaseException as error:  # noqa: BLE001  foreign code must not end the dispatcher, nor its thread
            logger.error("The publisher of %s failed: %s", name, indented(told(error)))
            telemetry.emit("publisher.failed", destination=name, error=type(error).__name__)
            return [Error(f"The publisher failed: {type(error).__name__}.") for _ in batch]
        if len(reports) != len(batch):
            logger.error("The publisher of %s gave %s answers for %s events", name, len(reports), len(batch))
            return [Error("The publisher gave another number of answers than it got events.") for _ in batch]
        return well_formed(reports)

    def _release(self, batch: Sequence[ClaimedDelivery]) -> None:
        settle(
            [
                Settlement(
                    claimed=item,
                    following=Following(
                        outcome=DeliveryOutcome.RELEASED,
                        state=DeliveryState.PENDING,
                        failed_count=item.failed_count,
                        lost_count=item.lost_count,
                    ),
                )
                for item in batch
            ],
            using=self.using,
        )

    def _record_again(self) -> None:
        """Record what publishers answered; what the database does not take is kept for the next time."""
        answered, budget = self._unrecorded, get_settings().delivery_attempts
        if not answered:
            return
        mark_published([(item, report) for item, report in answered if isinstance(report, Confirmed)], using=self.using)
        failed = [(item, report) for item, report in answered if not isinstance(report, Confirmed)]
        settlements = [
            Settlement(
                claimed=item,
                following=after_report(report, number=item.number, failed_count=item.failed_count, budget=budget),
                detail=report.reason,
                status=getattr(report, "status", None),
            )
            for item, report in failed
        ]
        settled = settle(settlements, using=self.using)
        self._unrecorded = []
        for item in settlements:
            if item.following.state is DeliveryState.DEAD_LETTERED and item.claimed.delivery_id in settled:
                tell_of_dead(
                    delivery_id=item.claimed.delivery_id,
                    event_id=item.claimed.event.id,
                    destination=item.claimed.destination,
                    reason=item.following.dead_reason,
                    message=f"refused {item.following.failed_count} times, the last time: {item.detail}",
                )

    def _note_down(self, outlook: Outlook, reports: Sequence[Report]) -> None:
        pause = pause_after(outlook.failures + 1, reports)
        error = next((report.reason for report in reports if not isinstance(report, Confirmed)), "")
        failures = note_down(outlook.destination, pause=pause, seen=outlook.failures, error=error, using=self.using)
        logger.warning(
            "Destination %s does not answer (%s in a row); trying again in %.0f s: %s",
            outlook.destination,
            failures,
            pause.total_seconds(),
            one_line(error),
        )

    def _sweep(self, outlooks: Sequence[Outlook]) -> int:
        """Walk over the ordering keys now and then, in slices; returns how many deliveries it let go."""
        ordered = [outlook.destination for outlook in outlooks if outlook.in_order]
        now = clock.boot_seconds()
        if not ordered or now - self._swept_at < SWEEP_EVERY:
            return 0
        promoted = 0
        for name in ordered:
            while True:
                with self._guarded():
                    after, found = sweep(
                        name, after=self._sweep_after.get(name, ""), limit=SWEEP_KEYS, using=self.using
                    )
                promoted += found
                self._sweep_after[name] = after
                if not after or clock.boot_seconds() - now > SWEEP_SLICE:
                    break
        if not any(self._sweep_after.get(name) for name in ordered):
            self._swept_at = now
        return promoted


def _margin() -> timedelta:
    return max(SHORTEST_MARGIN, get_settings().delivery_timeout / 3)


def _lease() -> timedelta:
    return get_settings().delivery_timeout + _margin()


def longest_delivering(suspect: bool) -> float:
    """Return after how many seconds a block of deliveries has ended, unless a publisher or the database hangs."""
    lease = _lease().total_seconds()
    return SUSPECTS_FOR + 2 * lease if suspect else (ATTEMPTS_AT_ONCE + 1) * lease


def _waits_for(outlook: Outlook) -> bool:
    return outlook.due_in is not None or outlook.suspect_in is not None


def _next_due(outlooks: Sequence[Outlook]) -> float | None:
    """Return in how many seconds something becomes due."""
    waits = [
        max(wait, outlook.open_for).total_seconds()
        for outlook in outlooks
        for wait in (outlook.due_in, outlook.suspect_in)
        if wait is not None
    ]
    return max(0.0, min(waits)) if waits else None
