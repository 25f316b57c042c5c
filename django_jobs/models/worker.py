"""A worker: one supervisor and its children."""

from __future__ import annotations

from django.db import models

from django_jobs.domain.ids import uuid7
from django_jobs.models.fields import InstantField


class Worker(models.Model):
    """One life of one supervisor process; a restart is another worker, whatever its name."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=128)
    host = models.CharField(max_length=255, default="", blank=True)
    pid = models.IntegerField()
    queues = models.TextField(default="[]")
    job_types = models.TextField(default="[]")
    kinds = models.TextField(
        default="[]", db_default="[]"
    )  # job types with their payload versions, see domain/lanes.py
    threads = models.PositiveIntegerField(default=1)
    coroutines = models.PositiveIntegerField(default=0, db_default=0)  # on the loop of each process, beside its threads
    processes = models.PositiveIntegerField(default=1)
    code_version = models.CharField(max_length=64, default="", blank=True)
    started_at = InstantField()
    heartbeat_at = InstantField()
    drain_asked_at = InstantField(null=True, blank=True)  # somebody wants it to stop; it reads this at each heartbeat
    stopping_at = InstantField(null=True, blank=True)
    stopped_at = InstantField(null=True, blank=True)

    class Meta:
        """Few rows; read whole."""

        verbose_name = "worker"
        default_permissions = ("view",)
        permissions = [("drain_worker", "Can ask a worker to drain and stop")]

    def __str__(self) -> str:
        return self.name

    @property
    def slots(self) -> int:
        """How many handlers it runs at once."""
        return (self.threads + self.coroutines) * self.processes
