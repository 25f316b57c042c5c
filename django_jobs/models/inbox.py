"""Messages that came from outside: each is taken once per consumer."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_jobs.domain.ids import uuid7
from django_jobs.models.fields import InstantField


class InboxMessage(models.Model):
    """A message that a consumer has taken, written in the transaction in which it was taken.

    ``job_id`` is the job that works on it; null for a consumer that worked in that transaction itself.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    consumer = models.CharField(max_length=200)
    source = models.CharField(max_length=200)
    message_id = models.CharField(max_length=255)
    data_digest = models.CharField(max_length=67)
    job_id = models.UUIDField(null=True, blank=True)
    received_at = InstantField()
    keep_until = InstantField()

    class Meta:
        """A consumer takes a message of a source once."""

        verbose_name = "inbox message"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["consumer", "source", "message_id"], name="django_jobs_inbox_once")
        ]
        indexes = [models.Index(fields=["job_id"], condition=Q(job_id__isnull=False), name="django_jobs_inbox_job")]

    def __str__(self) -> str:
        return f"{self.source} {self.message_id} for {self.consumer}"


class Quarantine(models.Model):
    """A message that was not taken: its id came before with other content, or it could not be read; insert-only."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    consumer = models.CharField(max_length=200)
    source = models.CharField(max_length=200)
    message_id = models.CharField(max_length=255)
    data = models.TextField(default="", blank=True)
    data_digest = models.CharField(max_length=67)
    first_digest = models.CharField(max_length=67, default="", blank=True)
    reason = models.TextField()
    created_at = InstantField()

    class Meta:
        """A content is put aside once, however often it comes."""

        verbose_name = "quarantined message"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["consumer", "source", "message_id", "data_digest"], name="django_jobs_quarantine_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.message_id} for {self.consumer}"
