"""Events, and their way to each destination."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import DeliveryOutcome, DeliveryState
from django_jobs.models.fields import InstantField

_UNFINISHED = ("waiting", "pending", "claimed", "dead_lettered")


class OutboxEvent(models.Model):
    """Something that happened, written in the transaction in which it happened; insert-only.

    ``job_id`` and ``fence`` name the job and the attempt whose success committed with it, if a job published it.
    ``routed_count`` says to how many destinations it was routed when it was published; none is legal.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    type = models.CharField(max_length=200)
    version = models.PositiveIntegerField()
    source = models.CharField(max_length=200)
    subject = models.CharField(max_length=200, default="", blank=True)
    tenant = models.CharField(max_length=64, default="", blank=True)
    data = models.TextField()
    data_digest = models.CharField(max_length=67)
    dataref = models.CharField(max_length=500, default="", blank=True)
    ordering_key = models.CharField(max_length=255, default="", blank=True)
    key_seq = models.BigIntegerField(null=True, blank=True)
    job_id = models.UUIDField(null=True, blank=True)
    attempt_id = models.UUIDField(null=True, blank=True)
    fence = models.BigIntegerField(null=True, blank=True)
    correlation_id = models.CharField(max_length=64, default="", blank=True)
    causation_id = models.CharField(max_length=64, default="", blank=True)
    traceparent = models.CharField(max_length=64, default="", blank=True)
    routed_count = models.PositiveIntegerField(default=0)
    created_at = InstantField()

    class Meta:
        """The sequence of an ordering key has no gap and no double."""

        verbose_name = "outbox event"
        default_permissions = ("view",)
        permissions = [("redispatch_outboxevent", "Can dispatch an event again, to the same or to other destinations")]
        constraints = [
            models.UniqueConstraint(
                fields=["ordering_key", "key_seq"], condition=~Q(ordering_key=""), name="django_jobs_event_in_order"
            ),
            models.CheckConstraint(
                condition=Q(ordering_key="", key_seq__isnull=True) | (~Q(ordering_key="") & Q(key_seq__isnull=False)),
                name="django_jobs_event_numbered",
            ),
            models.CheckConstraint(
                condition=Q(job_id__isnull=True, fence__isnull=True) | Q(job_id__isnull=False, fence__isnull=False),
                name="django_jobs_event_of_attempt",
            ),
        ]
        indexes = [
            models.Index(fields=["job_id"], condition=Q(job_id__isnull=False), name="django_jobs_event_job"),
            models.Index(fields=["subject", "id"], condition=~Q(subject=""), name="django_jobs_event_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"


class OrderingKey(models.Model):
    """The number of the last event of one ordering key; locked by whoever publishes under it."""

    ordering_key = models.CharField(max_length=255, primary_key=True)
    last_seq = models.BigIntegerField()

    class Meta:
        """Read by primary key."""

        verbose_name = "ordering key"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.ordering_key} {self.last_seq}"


class Subscription(models.Model):
    """Events of one type and version go to one destination; written by workers at start, never deleted by them."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    event_type = models.CharField(max_length=200)
    version = models.PositiveIntegerField()
    destination = models.CharField(max_length=250)  # "local:<job type>", or a name of DESTINATIONS
    active_from = InstantField()
    ended_at = InstantField(null=True, blank=True)
    created_at = InstantField()

    class Meta:
        """Few rows; read by type."""

        verbose_name = "subscription"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["event_type", "version", "destination"], name="django_jobs_subscription_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.event_type} v{self.version} to {self.destination}"


class Delivery(models.Model):
    """One event on its way to one destination. Only what may go now has an ``available_at``."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    event = models.ForeignKey(OutboxEvent, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    destination = models.CharField(max_length=250)
    redispatch = models.PositiveIntegerField(default=0)  # 0: by its route; higher: again, by an operator, out of order
    ordering_key = models.CharField(max_length=255, default="", blank=True)
    key_seq = models.BigIntegerField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in DeliveryState])
    revision = models.BigIntegerField(default=1)
    fence = models.BigIntegerField(default=0)  # how often it was claimed; the number of the last attempt
    attempt_id = models.UUIDField(null=True, blank=True)
    lease_owner = models.UUIDField(null=True, blank=True)
    lease_child = models.IntegerField(null=True, blank=True)  # the process of the worker in which its dispatcher works
    lease_expires_at = InstantField(null=True, blank=True)
    failed_count = models.PositiveIntegerField(default=0)  # attempts that speak against the event itself
    lost_count = models.PositiveIntegerField(default=0)  # attempts in a row whose process died; the next has no company
    available_at = InstantField(null=True, blank=True)
    published_at = InstantField(null=True, blank=True)
    receipt = models.CharField(max_length=255, default="", blank=True)
    dead_at = InstantField(null=True, blank=True)
    dead_reason = models.CharField(max_length=16, default="", blank=True)
    last_error = models.TextField(default="", blank=True)
    created_at = InstantField()

    class Meta:
        """The due index holds what may go, the suspect index what goes alone; the head index what a key waits for."""

        verbose_name = "delivery"
        verbose_name_plural = "deliveries"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["event", "destination", "redispatch"], name="django_jobs_delivery_once"),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in DeliveryState]), name="django_jobs_delivery_state_known"
            ),
            models.CheckConstraint(
                condition=Q(
                    state="claimed", attempt_id__isnull=False, lease_owner__isnull=False, lease_expires_at__isnull=False
                )
                | (
                    ~Q(state="claimed")
                    & Q(attempt_id__isnull=True, lease_owner__isnull=True, lease_expires_at__isnull=True)
                ),
                name="django_jobs_delivery_leased",
            ),
            models.CheckConstraint(
                condition=Q(state="published", published_at__isnull=False)
                | (~Q(state="published") & Q(published_at__isnull=True)),
                name="django_jobs_delivery_published",
            ),
            models.CheckConstraint(
                condition=(Q(state="dead_lettered", dead_at__isnull=False) & ~Q(dead_reason=""))
                | (~Q(state="dead_lettered") & Q(dead_at__isnull=True, dead_reason="")),
                name="django_jobs_delivery_dead",
            ),
            models.CheckConstraint(
                condition=Q(state="pending", available_at__isnull=False)
                | (~Q(state="pending") & Q(available_at__isnull=True)),
                name="django_jobs_delivery_due",
            ),
        ]
        indexes = [
            models.Index(
                fields=["destination", "available_at", "id"],
                condition=Q(state="pending"),
                name="django_jobs_delivery_ready",
            ),
            models.Index(
                fields=["destination", "available_at"],
                condition=Q(state="pending", lost_count__gt=0),
                name="django_jobs_delivery_suspect",
            ),
            models.Index(
                fields=["destination", "ordering_key", "key_seq"],
                condition=Q(state__in=_UNFINISHED, redispatch=0) & ~Q(ordering_key=""),
                name="django_jobs_delivery_head",
            ),
            models.Index(
                fields=["state", "id"],
                condition=Q(state__in=["claimed", "dead_lettered"]),
                name="django_jobs_delivery_held",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} to {self.destination} ({self.state})"


class DeliveryAttempt(models.Model):
    """One try to deliver, inserted by its claim; its number is the delivery's fence."""

    id = models.UUIDField(primary_key=True, editable=False)
    delivery = models.ForeignKey(
        Delivery, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="attempts"
    )
    number = models.BigIntegerField()
    worker_id = models.UUIDField()
    alone = models.CharField(
        max_length=6, default="", blank=True
    )  # '', 'child' or 'worker': nothing ran beside it there
    started_at = InstantField()
    finished_at = InstantField(null=True, blank=True)
    outcome = models.CharField(max_length=10, null=True, blank=True)  # noqa: DJ001  null means open
    status = models.IntegerField(null=True, blank=True)
    detail = models.TextField(default="", blank=True)

    class Meta:
        """Two indexes: the primary key, and the number within the delivery."""

        verbose_name = "delivery attempt"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["delivery", "number"], name="django_jobs_delivery_attempt_number"),
            models.CheckConstraint(
                condition=Q(outcome__isnull=True, finished_at__isnull=True)
                | Q(outcome__isnull=False, outcome__in=[o.value for o in DeliveryOutcome], finished_at__isnull=False),
                name="django_jobs_delivery_attempt_closed",
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.delivery_id}"


class Destination(models.Model):
    """What is known about one destination across dispatchers: its breaker. A row appears with the first failure."""

    name = models.CharField(max_length=250, primary_key=True)
    failures = models.PositiveIntegerField(default=0)  # in a row, of the destination itself
    open_until = InstantField(null=True, blank=True)  # until then nothing is claimed for it
    last_error = models.TextField(default="", blank=True)
    changed_at = InstantField()

    class Meta:
        """Few rows; read whole."""

        verbose_name = "destination"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name
