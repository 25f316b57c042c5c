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

from django_jobs import clock, telemetry
from django_jobs.conf import get_settings
from django_jobs.domain.deliveries import Following, after_report, is_down, pause_after
from django_jobs.domain.events import Confirmed, Error, Nacked, Report
from django_jobs.domain.states import DeliveryOutcome, DeliveryState
from django_jobs.outbox.answers import told, well_formed
from django_jobs.outbox.destinations import is_local, known_destinations, make_publisher, routes, subscriber_of
from django_jobs.outbox.local import deliver
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
    take_back_lost,
)
from django_jobs.store.subscriptions import announce

logger = logging.getLogger("django_jobs.outbox")

BATCH = 100  # deliveries of one destination that are claimed at once
SHORTEST_MARGIN = timedelta(seconds=2)  # of a lease beyond the time that a publisher has; at least a third of it
SWEEP_EVERY = 5.0  # seconds between two walks over the ordering keys
SWEEP_KEYS = 500  # ordering keys of one step of a walk
SWEEP_SLICE = 0.05  # seconds that a walk may take before something else is done
TAKE_BACK = 500
ATTEMPTS_AT_ONCE = 5  # batches of one destination before the others have their turn

Guard = Callable[[], AbstractContextManager[object]]


class Dispatcher:
    """The work of one thread. ``guarded`` makes a block for database calls, in which the caller bounds them.

    ``publishers`` are those that are made already, by the names of their destinations.
    """

    def __init__(
        self,
        *,
        worker_id: uuid.UUID,
        using: str,
        guarded: Guard = nullcontext,
        publishers: Mapping[str, Publisher] | None = None,
    ) -> None:
        self.using = using
        self.destinations = known_destinations()
        self._worker_id = worker_id
        self._guarded = guarded
        self._publishers: dict[str, Publisher] = dict(publishers or {})
        self._unrecorded: list[tuple[ClaimedDelivery, Report]] = []  # answers that the database did not take yet
        self._swept_at = float("-inf")
        self._sweep_after: dict[str, str] = {}
        self._announced = False
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
                take_back_lost(limit=TAKE_BACK, using=self.using)
            return 0.0
        swept = self._sweep(outlooks)
        served = [self._serve(outlook) for outlook in outlooks if outlook.is_due and not self.stopping()]
        if swept or any(served):
            return 0.0
        waits = [
            max(outlook.due_in, outlook.open_for).total_seconds() for outlook in outlooks if outlook.due_in is not None
        ]
        return max(0.0, min(waits)) if waits else None

    def is_nothing_left(self) -> bool:
        """Say whether nothing waits for a destination of this process, nor is on its way from here.

        What waits for a destination that is down does not count: that may take for ever.
        """
        with self._guarded():
            outlooks = look_at_destinations(self.destinations, using=self.using)
        left = any(outlook.due_in is not None and not outlook.failures for outlook in outlooks)
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
        """Deliver to one destination; returns whether something was claimed."""
        name, lease = outlook.destination, get_settings().delivery_timeout + _margin()
        if is_local(name) and subscriber_of(name) is None:
            return False
        room = BATCH
        if outlook.failures:
            with self._guarded():
                if not take_probe(name, pause=lease, using=self.using):
                    return False
            room = 1
        for _ in range(ATTEMPTS_AT_ONCE):
            asked_at = clock.boot_seconds()
            ids = [uuid.uuid4() for _ in range(room)]
            with self._guarded():
                batch = claim_deliveries(name, ids, worker_id=self._worker_id, lease=lease, using=self.using)
            if not batch:
                if outlook.failures:  # others had claimed what was due
                    with self._guarded():
                        give_probe_back(name, using=self.using)
                return False
            down = self._deliver(outlook, batch, asked_at)
            if down or outlook.failures or len(batch) < room or self.stopping():
                break
        return True

    def _deliver(self, outlook: Outlook, batch: Sequence[ClaimedDelivery], asked_at: float) -> bool:
        """Deliver one batch and record the answers; returns whether the destination is down."""
        if is_local(outlook.destination):
            self._deliver_here(batch)
            return False
        late = clock.boot_seconds() - asked_at > _margin().total_seconds() / 2
        if late or self.stopping():
            self._release(batch)  # a publisher that began now could still be at it when the lease is over
            return False
        reports = self._publish(outlook.destination, batch)
        answered = list(zip(batch, reports, strict=True))
        self._unrecorded += answered
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
        logger.error("A subscriber's job could not be stored: %s", told(error))
        refusal = Nacked(f"The job could not be stored: {type(error).__name__}.")
        self._unrecorded += [(item, refusal) for item in batch]
        with self._guarded():
            self._record_again()

    def _publish(self, name: str, batch: Sequence[ClaimedDelivery]) -> list[Report]:
        seconds = get_settings().delivery_timeout.total_seconds()
        try:
            if name not in self._publishers:
                self._publishers[name] = make_publisher(name)
            reports = self._publishers[name].publish_batch([item.parcel for item in batch], seconds=seconds)
        except Exception as error:  # noqa: BLE001  foreign code must not end the dispatcher
            logger.error("The publisher of %s failed: %s", name, told(error))
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
                _tell_of_dead(item)

    def _note_down(self, outlook: Outlook, reports: Sequence[Report]) -> None:
        pause = pause_after(outlook.failures + 1, reports)
        error = next((report.reason for report in reports if not isinstance(report, Confirmed)), "")
        failures = note_down(outlook.destination, pause=pause, seen=outlook.failures, error=error, using=self.using)
        logger.warning(
            "Destination %s does not answer (%s in a row); trying again in %.0f s: %s",
            outlook.destination,
            failures,
            pause.total_seconds(),
            error,
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


def _tell_of_dead(item: Settlement) -> None:
    claimed = item.claimed
    definition = subscriber_of(claimed.destination) if is_local(claimed.destination) else None
    logger.error(
        "The delivery of event %s to %s is dead after %s refusals: %s",
        claimed.event.id,
        claimed.destination,
        item.following.failed_count,
        item.detail,
    )
    telemetry.emit(
        "owner.alert",
        reason=f"dead delivery: {item.following.dead_reason}",
        delivery_id=claimed.delivery_id,
        event_id=claimed.event.id,
        destination=claimed.destination,
        owner=definition.options.owner if definition else "",
        message=item.detail,
    )
