"""The logical job, its payload and its finished steps."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.db.models import Case, F, Q, Value, When

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import Alone, DeadReason, ErrorClass, JobState, Resolution
from django_jobs.models.fields import InstantField

WAITING = (JobState.SCHEDULED.value, JobState.QUEUED.value, JobState.FAILED.value)
BAND = Case(When(priority__gt=0, then=Value(1)), When(priority__lt=0, then=Value(-1)), default=Value(0))
_FINISHED = Q(state__in=[JobState.SUCCEEDED.value, JobState.CANCELLED.value]) | Q(resolution__isnull=False)


class JobQuerySet(models.QuerySet["Job"]):
    """What a reader asks of jobs."""

    def in_state(self, *states: str) -> Self:
        """Jobs in one of the states."""
        return self.filter(state__in=states)

    def unfinished(self) -> Self:
        """Jobs that still need somebody: not succeeded, not cancelled, not a dead letter with a resolution."""
        return self.exclude(_FINISHED)

    def dead(self) -> Self:
        """Dead letters that wait for a human."""
        return self.filter(state=JobState.DEAD_LETTERED, resolution__isnull=True)

    def about(self, subject: str) -> Self:
        """Jobs about one thing, for example ``order:42``."""
        return self.filter(subject=subject)


class Job(models.Model):
    """One logical unit of work, kept under its identity through all attempts, replays and code versions."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job_type = models.CharField(max_length=200)
    queue_name = models.CharField(max_length=100, default="default")
    lane = models.CharField(max_length=250, default="", blank=True)  # where it waits, see domain/lanes.py
    resource = models.CharField(max_length=100, default="", blank=True, db_default="")
    serial_key = models.CharField(max_length=450, default="", blank=True, db_default="")
    serial_skips = models.BooleanField(default=False, db_default=False)  # as a dead letter it gives up its turn
    priority = models.SmallIntegerField(default=0)
    tenant = models.CharField(max_length=64, default="", blank=True)
    payload_version = models.PositiveIntegerField(default=1)
    payload_fingerprint = models.CharField(max_length=67)
    state = models.CharField(max_length=16, choices=[(s.value, s.value) for s in JobState])
    revision = models.BigIntegerField(default=1)
    generation = models.PositiveIntegerField(default=1)
    generation_started_at = InstantField()
    unknown_count = models.PositiveIntegerField(default=0)
    transient_count = models.PositiveIntegerField(default=0)
    lost_count = models.PositiveIntegerField(default=0)
    exit_lost_count = models.PositiveIntegerField(default=0)
    silent_lost_count = models.PositiveIntegerField(default=0)
    free_count = models.PositiveIntegerField(default=0)
    unchanged_count = models.PositiveIntegerField(default=0)
    waiting_since = InstantField(null=True, blank=True)
    isolation = models.CharField(max_length=8, default="", blank=True, choices=[(a.value, a.value) for a in Alone])
    extra_attempts = models.PositiveSmallIntegerField(default=0, db_default=0)  # granted by the replay of a generation
    fence = models.BigIntegerField(default=0)
    attempt_id = models.UUIDField(null=True, blank=True)
    lease_owner = models.UUIDField(null=True, blank=True)
    lease_child = models.IntegerField(null=True, blank=True)
    lease_expires_at = InstantField(null=True, blank=True)
    progress = models.BigIntegerField(null=True, blank=True)
    progress_total = models.BigIntegerField(null=True, blank=True)
    available_at = InstantField()
    useful_until = InstantField(null=True, blank=True)
    error_class = models.CharField(max_length=10, default="", blank=True)
    error_type = models.CharField(max_length=200, default="", blank=True)
    error_fingerprint = models.CharField(max_length=67, default="", blank=True)
    dead_reason = models.CharField(max_length=16, default="", blank=True)
    dead_at = InstantField(null=True, blank=True)
    resolution = models.CharField(max_length=12, null=True, blank=True)  # noqa: DJ001  null means open
    code_version = models.CharField(max_length=64, default="", blank=True)
    owner = models.CharField(max_length=100, default="", blank=True)
    correlation_id = models.CharField(max_length=64, default="", blank=True)
    subject = models.CharField(max_length=200, default="", blank=True)
    batch_id = models.UUIDField(null=True, blank=True)
    traceparent = models.CharField(max_length=64, default="", blank=True)
    created_at = InstantField()
    finished_at = InstantField(null=True, blank=True)
    content_removed_at = InstantField(null=True, blank=True)  # since then it has no payload and no readable text

    objects = JobQuerySet.as_manager()

    class Meta:
        """Constraints make impossible states unstorable; the indexes are all that a transition has to keep up."""

        verbose_name = "job"
        verbose_name_plural = "jobs"
        default_permissions = ("view",)
        permissions = [
            ("replay_job", "Can replay a dead letter"),
            ("replay_job_bulk", "Can replay many dead letters at once"),
            ("discard_job", "Can discard a dead letter"),
            ("cancel_job", "Can cancel a job"),
            ("reschedule_job", "Can run a waiting job now"),
            ("expire_job_lease", "Can end the lease of a running job"),
            ("view_job_payload", "Can see arguments and results unmasked"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in JobState]), name="django_jobs_job_state_known"
            ),
            models.CheckConstraint(
                condition=Q(
                    state="running",
                    attempt_id__isnull=False,
                    lease_owner__isnull=False,
                    lease_child__isnull=False,
                    lease_expires_at__isnull=False,
                )
                | (
                    ~Q(state="running")
                    & Q(
                        attempt_id__isnull=True,
                        lease_owner__isnull=True,
                        lease_child__isnull=True,
                        lease_expires_at__isnull=True,
                    )
                ),
                name="django_jobs_job_leased_while_running",
            ),
            models.CheckConstraint(
                condition=Q(state="dead_lettered", dead_at__isnull=False, dead_reason__in=[r.value for r in DeadReason])
                | (~Q(state="dead_lettered") & Q(dead_at__isnull=True, dead_reason="")),
                name="django_jobs_job_dead_with_reason",
            ),
            models.CheckConstraint(
                condition=Q(resolution__isnull=True)
                | Q(state="dead_lettered", resolution__in=[r.value for r in Resolution]),
                name="django_jobs_job_resolution_of_dead",
            ),
            models.CheckConstraint(
                condition=(_FINISHED & Q(finished_at__isnull=False)) | (~_FINISHED & Q(finished_at__isnull=True)),
                name="django_jobs_job_finished_when_done",
            ),
            models.CheckConstraint(
                condition=Q(priority__gte=-100, priority__lte=100), name="django_jobs_job_priority_range"
            ),
            models.CheckConstraint(
                condition=Q(lost_count=F("exit_lost_count") + F("silent_lost_count")),
                name="django_jobs_job_losses_add_up",
            ),
            models.CheckConstraint(
                condition=Q(error_class__in=["", *[c.value for c in ErrorClass]]), name="django_jobs_job_error_class"
            ),
            models.CheckConstraint(
                condition=Q(isolation__in=[a.value for a in Alone]), name="django_jobs_job_isolation_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["queue_name", "lane", "-priority", "available_at", "id"],
                condition=Q(state="queued", isolation=""),
                name="django_jobs_job_ready",
            ),
            models.Index(
                F("queue_name"),
                F("lane"),
                BAND,
                F("available_at"),
                condition=Q(state__in=["scheduled", "failed"]),
                name="django_jobs_job_due",
            ),
            # Waiting jobs that somebody looks for although most waiting jobs are not in it: suspects, and what expires.
            models.Index(
                fields=["isolation", "useful_until"],
                condition=Q(state__in=["scheduled", "queued", "failed"])
                & (~Q(isolation="") | Q(useful_until__isnull=False)),
                name="django_jobs_job_watched",
            ),
            models.Index(
                fields=["state", "id"],
                condition=Q(state__in=["running", "dead_lettered"]),
                name="django_jobs_job_held",
            ),
            models.Index(fields=["subject", "id"], condition=~Q(subject=""), name="django_jobs_job_subject"),
            models.Index(
                fields=["serial_key", "available_at", "id"],
                condition=~Q(serial_key="") & Q(state__in=["scheduled", "queued", "failed"]),
                name="django_jobs_job_serial",
            ),
            # Has nothing of a job that is in no batch. Whether a member is unfinished is one look at the nulls in it.
            models.Index(
                fields=["batch_id", "finished_at"], condition=Q(batch_id__isnull=False), name="django_jobs_job_batch"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job_type} {self.id} ({self.state})"


class DeadLetter(Job):
    """The jobs that wait for a human, as an entry of their own in the admin."""

    class Meta:
        """Rows of the jobs' table."""

        proxy = True
        verbose_name = "dead letter"
        default_permissions = ("view",)


class JobPayload(models.Model):
    """The wide and rarely read part of a job: no transition copies it."""

    job = models.OneToOneField(
        Job, models.DO_NOTHING, primary_key=True, db_constraint=False, related_name="payload", db_index=False
    )
    arguments = models.TextField()
    key_scope = models.CharField(max_length=300, default="", blank=True)
    key = models.CharField(max_length=255, default="", blank=True)
    previous_job_id = models.UUIDField(null=True, blank=True)
    chain_id = models.UUIDField(null=True, blank=True)
    chain_position = models.PositiveSmallIntegerField(null=True, blank=True)
    context = models.TextField(null=True, blank=True)  # noqa: DJ001  null: the job carries nothing
    result = models.TextField(null=True, blank=True)  # noqa: DJ001  null: no result; "null" is the result None
    error_text = models.TextField(default="", blank=True)

    class Meta:
        """No further index: it is read by job only."""

        verbose_name = "job payload"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"payload of {self.job_id}"


class JobStep(models.Model):
    """A finished step of a handler: it ran, and its rows committed together with this one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="steps")
    name = models.CharField(max_length=200)
    result = models.TextField()
    attempt_id = models.UUIDField()
    fence = models.BigIntegerField()
    created_at = InstantField()

    class Meta:
        """A step of a job exists once."""

        verbose_name = "job step"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["job", "name"], name="django_jobs_step_once")]

    def __str__(self) -> str:
        return f"{self.name} of {self.job_id}"
