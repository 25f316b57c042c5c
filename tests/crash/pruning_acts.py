"""Runs of pruning that are hit after a batch, beside rows that must stay."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models, transaction

from django_jobs import clock, inbox
from django_jobs.domain.ids import first_id
from django_jobs.models import (
    Delivery,
    IdempotencyKey,
    InboxMessage,
    Job,
    OutboxEvent,
    PrunedStretch,
)
from tests.concurrency.test_prune_races import finished_long_ago
from tests.crash.acts import Act, commanded
from tests.crash.outbox_handlers import kept
from tests.factories import JobFactory
from tests.factories_outbox import DeliveryFactory, OutboxEventFactory

OLD = timedelta(days=500)
BATCH, MANY = 2, 5


class Pruned(Act):
    """A run of pruning over rows of one kind that are old, beside rows that must stay; hit after its first batch."""

    kind: str
    nth = 1

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.before = self._recorded()
        self.old = self.prepare()
        self.waiting = JobFactory(queued=True, created_at=clock.now() - OLD).pk
        self.unsent = DeliveryFactory(event__created_at=clock.now() - OLD, event__id=_old_ids(1, n)[0]).pk
        with clock.override(lambda: datetime.now(UTC) - timedelta(hours=1)):
            self.key = kept.enqueue(n=n).id

    @abstractmethod
    def prepare(self) -> models.QuerySet[Any]:
        """Store ``MANY`` old rows; returns them."""

    @property
    def verb_arguments(self) -> list[str]:
        """What ``manage.py jobs`` is given."""
        return ["prune", "--batch", str(BATCH)]

    @property
    def arguments(self) -> list[str]:
        """The whole command."""
        return ["jobs", *self.verb_arguments]

    def do(self) -> None:
        """Prune."""
        assert commanded(*self.verb_arguments)[0] == 0

    def is_done(self) -> bool:
        """Say whether one batch was taken, whole and with its record, and not the next."""
        taken = self._recorded() - self.before
        assert self.old.count() == MANY - taken
        assert taken <= BATCH or taken == MANY, taken
        return taken > 0

    def again(self, *, done: bool) -> None:
        """Prune once more: it goes on where the other one stopped."""
        assert done, "the batch before the point is committed"
        assert commanded(*self.verb_arguments)[0] == 0

    def judge(self) -> None:
        """All that is old is gone and on record once; what is open, answers or is not sent is there."""
        assert (self.old.count(), self._recorded() - self.before) == (0, MANY)
        assert Job.objects.filter(pk__in=[self.waiting, self.key]).count() == 2
        assert IdempotencyKey.objects.filter(job_id=self.key).exists()
        assert kept.enqueue(n=self.n).outcome == "duplicate"
        assert Delivery.objects.filter(pk=self.unsent, state="pending", event__isnull=False).exists()

    def _recorded(self) -> int:
        return PrunedStretch.objects.filter(kind=self.kind).aggregate(many=models.Sum("rows"))["many"] or 0


class PrunedJobs(Pruned):
    """Jobs that ended long ago: their content first, in three batches, then their rows."""

    name, kind = "prune jobs", "jobs"
    nth = 4

    def prepare(self) -> models.QuerySet[Any]:
        """Store finished jobs."""
        finished_long_ago(MANY, days=500 + self.n)
        return Job.objects.filter(state="succeeded", created_at__lt=clock.now() - OLD + timedelta(hours=1))


class PrunedEvents(Pruned):
    """Events that were delivered long ago."""

    name, kind = "prune events", "events"

    def prepare(self) -> models.QuerySet[Any]:
        """Store published events."""
        ids = _old_ids(MANY, 100 + self.n)
        for pk in ids:
            event = OutboxEventFactory(id=pk, created_at=clock.now() - OLD, routed_count=1)
            DeliveryFactory(event=event, published=True, now=clock.now() - OLD)
        return OutboxEvent.objects.filter(pk__in=ids)


class PrunedMessages(Pruned):
    """Messages that need not be remembered any more."""

    name, kind = "prune messages", "messages"

    def prepare(self) -> models.QuerySet[Any]:
        """Take messages, long ago."""
        with clock.override(lambda: datetime.now(UTC) - OLD):
            for place in range(MANY):
                with transaction.atomic(), inbox.once("crash.old", "outside", f"old:{self.n}:{place}"):
                    pass
        return InboxMessage.objects.filter(consumer="crash.old", message_id__startswith=f"old:{self.n}:")


def _old_ids(many: int, n: int) -> list[uuid.UUID]:
    """Return ids that are as old as their rows."""
    first = first_id(datetime.now(UTC) - OLD).int + n * 1000
    return [uuid.UUID(int=first + place) for place in range(many)]
