"""What operators and workers say about queues and job types: who sleeps, and what is held back."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import PauseKind
from django_jobs.models.fields import InstantField


class QueueControl(models.Model):
    """One queue as producers see it. ``idle_until`` in the future: a worker sleeps and wants to be notified."""

    queue_name = models.CharField(max_length=100, primary_key=True)
    idle_until = InstantField(null=True, blank=True)

    class Meta:
        """Few rows; read by primary key."""

        verbose_name = "queue control"
        default_permissions = ("view",)
        permissions = [("control_queue", "Can pause and resume queues and job types")]

    def __str__(self) -> str:
        return self.queue_name


class Resource(models.Model):
    """What workers and operators know of a resource, beside what the settings say.

    ``max_running`` and ``max_rate`` stand instead of the settings while they are given. ``behind`` is the token bucket
    of the rate (``domain/resources.py``); ``paused_until`` is what the downstream itself asked for last.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, unique=True)
    max_running = models.PositiveIntegerField(null=True, blank=True)
    max_rate = models.CharField(max_length=12, default="", blank=True)
    behind = InstantField(null=True, blank=True)
    paused_until = InstantField(null=True, blank=True)
    paused_by = models.UUIDField(null=True, blank=True)  # the job whose downstream asked for it

    class Meta:
        """Few rows; read by name."""

        verbose_name = "resource"
        default_permissions = ("view",)
        permissions = [("bound_resource", "Can change the limit and the rate of a resource")]

    def __str__(self) -> str:
        return self.name


class SerialTurn(models.Model):
    """Which job of a serial key has the turn: it alone may be claimed until it has ended."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.CharField(max_length=450, unique=True)
    job_id = models.UUIDField(null=True, blank=True)

    class Meta:
        """One row per key of which a job waits or runs."""

        verbose_name = "serial turn"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.key


class Pause(models.Model):
    """Somebody holds something back; gone when it is resumed, without effect after ``paused_until``."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=8, choices=[(kind.value, kind.value) for kind in PauseKind])
    name = models.CharField(max_length=200)
    actor = models.CharField(max_length=150)
    reason = models.TextField()
    paused_until = InstantField(null=True, blank=True)
    created_at = InstantField()

    class Meta:
        """Few rows; read whole."""

        verbose_name = "pause"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], name="django_jobs_pause_once"),
            models.CheckConstraint(
                condition=Q(kind__in=[kind.value for kind in PauseKind]), name="django_jobs_pause_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"
