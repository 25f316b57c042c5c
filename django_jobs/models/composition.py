"""Jobs that belong together: batches with what follows when all have ended, and chains that run one after the other."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import OnDead
from django_jobs.models.fields import InstantField

_COUNTS = ("succeeded", "cancelled", "resolved", "dead")


class Batch(models.Model):
    """Jobs whose common end is waited for. No completion writes this row: it is closed after the last member's commit.

    ``callback`` is the call that follows, as it is stored; empty without one, and again once its job is enqueued. The
    counts are those at the closing.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.CharField(max_length=255, default="", blank=True)
    on_dead = models.CharField(max_length=8, choices=[(one.value, one.value) for one in OnDead])
    owner = models.CharField(max_length=100, default="", blank=True)
    callback_type = models.CharField(max_length=200, default="", blank=True)
    callback = models.TextField(default="", blank=True)
    callback_job_id = models.UUIDField(null=True, blank=True)
    created_at = InstantField()
    told_at = InstantField(null=True, blank=True)  # when the owner was told that dead letters keep it open
    closed_at = InstantField(null=True, blank=True)
    succeeded = models.PositiveIntegerField(null=True, blank=True)
    cancelled = models.PositiveIntegerField(null=True, blank=True)
    resolved = models.PositiveIntegerField(null=True, blank=True)
    dead = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        """A key names one batch; those that are open are found by maintenance."""

        verbose_name = "batch"
        verbose_name_plural = "batches"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["key"], condition=~Q(key=""), name="django_jobs_batch_once"),
            models.CheckConstraint(
                condition=Q(on_dead__in=[one.value for one in OnDead]), name="django_jobs_batch_on_dead_known"
            ),
            models.CheckConstraint(
                condition=Q(closed_at__isnull=True, callback_job_id__isnull=True)
                & Q(**{f"{name}__isnull": True for name in _COUNTS})
                | Q(closed_at__isnull=False, callback="") & Q(**{f"{name}__isnull": False for name in _COUNTS}),
                name="django_jobs_batch_counted_when_closed",
            ),
        ]
        indexes = [models.Index(fields=["id"], condition=Q(closed_at__isnull=True), name="django_jobs_batch_open")]

    def __str__(self) -> str:
        return f"batch {self.id}"


class Chain(models.Model):
    """Jobs of which each is enqueued in the transaction that records the success of the one before."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.CharField(max_length=255, default="", blank=True)
    owner = models.CharField(max_length=100, default="", blank=True)
    length = models.PositiveSmallIntegerField()
    created_at = InstantField()

    class Meta:
        """A key names one chain."""

        verbose_name = "chain"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["key"], condition=~Q(key=""), name="django_jobs_chain_once")]

    def __str__(self) -> str:
        return f"chain {self.id}"


class ChainLink(models.Model):
    """One place of a chain; ``call`` is kept until its job is enqueued: from then on its payload has the arguments."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    chain = models.ForeignKey(Chain, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="links")
    position = models.PositiveSmallIntegerField()  # from 1
    job_type = models.CharField(max_length=200)
    pass_result = models.CharField(max_length=200, default="", blank=True)  # the argument that gets the former's result
    call = models.TextField(default="", blank=True)
    job_id = models.UUIDField(null=True, blank=True)

    class Meta:
        """A place is there once."""

        verbose_name = "chain link"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["chain", "position"], name="django_jobs_link_once"),
            models.CheckConstraint(
                condition=Q(job_id__isnull=True) & ~Q(call="") | Q(job_id__isnull=False, call=""),
                name="django_jobs_link_call_until_enqueued",
            ),
        ]

    def __str__(self) -> str:
        return f"link {self.position} of chain {self.chain_id}"
