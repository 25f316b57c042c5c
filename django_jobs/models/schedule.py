"""Schedules as workers find them in the code, and each tick that was run."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from django_jobs.domain.ids import uuid7
from django_jobs.domain.schedules import TEXT_LIMIT, Missed
from django_jobs.domain.states import TickOutcome
from django_jobs.models.fields import InstantField


class Schedule(models.Model):
    """One schedule; up to ``settled_at`` every tick was run or given up. A worker never takes a row away."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200, unique=True)
    job_type = models.CharField(max_length=200)
    # As the code says it; a worker whose code says otherwise leaves it alone.
    rule = models.CharField(max_length=TEXT_LIMIT)
    missed = models.CharField(max_length=10, choices=[(one.value, one.value) for one in Missed])
    owner = models.CharField(max_length=100, default="", blank=True)
    settled_at = InstantField()
    next_tick = InstantField(null=True, blank=True)  # null: the rule never ticks again
    last_job_id = models.UUIDField(null=True, blank=True)
    declared_at = InstantField()
    code_version = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        """Few rows; read whole."""

        verbose_name = "schedule"
        default_permissions = ("view",)
        permissions = [("run_schedule", "Can run a schedule now")]

    def __str__(self) -> str:
        return self.name


class ScheduleTick(models.Model):
    """One tick of one schedule and the job that came of it: its place can be taken once, by whichever worker."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    schedule_name = models.CharField(max_length=200)
    tick = InstantField()
    outcome = models.CharField(max_length=10, choices=[(one.value, one.value) for one in TickOutcome])
    job_id = models.UUIDField(null=True, blank=True)
    message = models.TextField(default="", blank=True)
    action_id = models.UUIDField(null=True, blank=True)  # of the decision that ran it by hand
    created_at = InstantField()

    class Meta:
        """A tick is there once."""

        verbose_name = "schedule tick"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["schedule_name", "tick"], name="django_jobs_tick_once"),
            models.CheckConstraint(
                condition=Q(outcome__in=[one.value for one in TickOutcome]), name="django_jobs_tick_outcome_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.schedule_name} at {self.tick:%Y-%m-%d %H:%M:%S}"
