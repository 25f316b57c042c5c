"""One delivery of a job to a worker."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Q

from django_jobs.domain.states import Alone, AttemptOutcome, LossCause
from django_jobs.models.fields import InstantField
from django_jobs.models.job import Job


class AttemptQuerySet(models.QuerySet["Attempt"]):
    """What a reader asks of attempts."""

    def lost(self) -> Self:
        """Attempts whose end was never observed; they may have succeeded."""
        return self.filter(outcome=AttemptOutcome.LOST)


class Attempt(models.Model):
    """One delivery, inserted by the claim itself; its id is the proof of ownership and its number the fence."""

    id = models.UUIDField(primary_key=True, editable=False)
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="attempts")
    number = models.BigIntegerField()
    generation = models.PositiveIntegerField()
    worker_id = models.UUIDField()
    worker_child = models.IntegerField()
    worker_name = models.CharField(max_length=128, default="", blank=True)
    code_version = models.CharField(max_length=64, default="", blank=True)
    alone = models.CharField(max_length=8, default="", blank=True, choices=[(a.value, a.value) for a in Alone])
    started_at = InstantField()
    lease_seconds = models.FloatField()
    progress = models.BigIntegerField(null=True, blank=True)
    finished_at = InstantField(null=True, blank=True)
    outcome = models.CharField(max_length=10, null=True, blank=True)  # noqa: DJ001  null means open
    error_class = models.CharField(max_length=10, default="", blank=True)
    error_type = models.CharField(max_length=200, default="", blank=True)
    error_fingerprint = models.CharField(max_length=67, default="", blank=True)
    message = models.TextField(default="", blank=True)
    traceback = models.TextField(default="", blank=True)
    loss_cause = models.CharField(max_length=8, default="", blank=True, choices=[(c.value, c.value) for c in LossCause])
    exit_status = models.IntegerField(null=True, blank=True)  # as the supervisor saw it: minus the signal, or the code
    over_budget = models.BooleanField(default=False)
    refused_count = models.PositiveIntegerField(default=0)
    refused_at = InstantField(null=True, blank=True)
    refused_operation = models.CharField(max_length=32, default="", blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        """Two indexes: the primary key, and the number within the job."""

        verbose_name = "attempt"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["job", "number"], name="django_jobs_attempt_number"),
            models.CheckConstraint(
                condition=Q(outcome__isnull=True, finished_at__isnull=True)
                # "is not null" first: a CHECK accepts what evaluates to null
                | Q(outcome__isnull=False, outcome__in=[o.value for o in AttemptOutcome], finished_at__isnull=False),
                name="django_jobs_attempt_closed_once",
            ),
            models.CheckConstraint(
                condition=Q(outcome__isnull=False, outcome="lost", loss_cause__in=[c.value for c in LossCause])
                | (Q(loss_cause="") & (Q(outcome__isnull=True) | ~Q(outcome="lost"))),
                name="django_jobs_attempt_loss_has_cause",
            ),
            models.CheckConstraint(
                condition=Q(alone__in=[a.value for a in Alone]), name="django_jobs_attempt_alone_known"
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.job_id}"
