"""Idempotency keys, the duplicates that they answered, and the identity of this installation."""

from __future__ import annotations

from django.db import models

from django_jobs.domain.ids import uuid7
from django_jobs.models.fields import InstantField


class IdempotencyKey(models.Model):
    """Who holds a key. Live while the job is unfinished, then until its end plus ``ttl_seconds``.

    ``expires_at`` and how the job ended are written only when the job row is pruned; before that the job's own times
    decide, so that no completion ever touches this row.
    """

    job_id = models.UUIDField(primary_key=True)
    scope = models.CharField(max_length=300)
    key = models.CharField(max_length=255)
    payload_version = models.PositiveIntegerField(default=1)
    payload_fingerprint = models.CharField(max_length=67)
    ttl_seconds = models.FloatField()
    created_at = InstantField()
    expires_at = InstantField(null=True, blank=True)
    final_state = models.CharField(max_length=16, null=True, blank=True)  # noqa: DJ001  null until the job is pruned
    final_resolution = models.CharField(max_length=12, null=True, blank=True)  # noqa: DJ001  null: it had none

    class Meta:
        """One holder per key."""

        verbose_name = "idempotency key"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["scope", "key"], name="django_jobs_key_once")]

    def __str__(self) -> str:
        return f"{self.scope} {self.key}"


class DuplicateEnqueue(models.Model):
    """An enqueue that a live key answered; insert-only, so that a duplicate never waits for another one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job_id = models.UUIDField()
    outcome = models.CharField(max_length=20)  # "duplicate", or "alerted" when the owner of a dead letter was told too
    created_at = InstantField()

    class Meta:
        """Read by job, newest first."""

        verbose_name = "duplicate enqueue"
        default_permissions = ("view",)
        indexes = [models.Index(fields=["job_id", "id"], name="django_jobs_duplicate_newest")]

    def __str__(self) -> str:
        return f"{self.outcome} of {self.job_id}"


class Installation(models.Model):
    """One row: the namespace of provider keys, unless the settings name one."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    namespace = models.CharField(max_length=64)
    created_at = InstantField()

    class Meta:
        """A single row."""

        verbose_name = "installation"
        default_permissions = ("view",)
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="django_jobs_installation_single")]

    def __str__(self) -> str:
        return self.namespace
