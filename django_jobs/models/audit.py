"""What people decided: the audit, cancels that a running handler has yet to hear, compensations, and bulk replays."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models
from django.db.models import Q

from django_jobs.domain.ids import uuid7
from django_jobs.domain.states import CompensationOutcome, ReplayOutcome, ReplayState
from django_jobs.models.effect import SideEffect
from django_jobs.models.fields import InstantField


class AppendOnlyQuerySet(models.QuerySet["OperatorAction"]):
    """Rows that are written once."""

    def update(self, **values: Any) -> NoReturn:  # noqa: ARG002  as Django has it
        """Refuse: what was decided cannot be changed.

        Raises:
            TypeError: Always.
        """
        msg = "The audit is append-only: its rows cannot be changed."
        raise TypeError(msg)

    def delete(self) -> NoReturn:
        """Refuse: what was decided cannot be taken away.

        Raises:
            TypeError: Always.
        """
        msg = "The audit is append-only: its rows cannot be deleted."
        raise TypeError(msg)


class OperatorAction(models.Model):
    """One decision of a person (or of a declared policy), in the transaction that carried it out; insert-only.

    ``plan`` is the canonical JSON of what was acknowledged and ``plan_digest`` its digest as computed under the lock;
    ``given_digest`` is what the operator acknowledged. Both are equal in every row. It never holds payload.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    action = models.CharField(max_length=32)
    actor = models.CharField(max_length=150)
    owner = models.CharField(max_length=100)
    reason_code = models.CharField(max_length=20, default="", blank=True)
    reason = models.TextField()
    ticket = models.CharField(max_length=100, default="", blank=True)
    job_id = models.UUIDField(null=True, blank=True)
    effect_id = models.UUIDField(null=True, blank=True)
    event_id = models.UUIDField(null=True, blank=True)
    delivery_id = models.UUIDField(null=True, blank=True)
    request_id = models.UUIDField(null=True, blank=True)
    from_state = models.CharField(max_length=16, default="", blank=True)
    from_revision = models.BigIntegerField(null=True, blank=True)
    from_generation = models.PositiveIntegerField(null=True, blank=True)
    given_digest = models.CharField(max_length=67, default="", blank=True)
    plan_digest = models.CharField(max_length=67, default="", blank=True)
    plan = models.TextField(default="{}")
    created_at = InstantField()

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        """Kept for ever; read newest first, by job or by effect."""

        verbose_name = "operator action"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(
                condition=~Q(actor="") & ~Q(owner="") & ~Q(reason=""), name="django_jobs_action_says_who_and_why"
            ),
            models.CheckConstraint(
                condition=Q(given_digest=models.F("plan_digest")), name="django_jobs_action_acknowledged"
            ),
        ]
        indexes = [
            models.Index(fields=["job_id", "id"], condition=Q(job_id__isnull=False), name="django_jobs_action_job"),
            models.Index(
                fields=["effect_id", "id"], condition=Q(effect_id__isnull=False), name="django_jobs_action_effect"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"

    def _do_update(self, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG002  as Django has it
        """Refuse what Django does when a stored row is saved again."""
        msg = "The audit is append-only: its rows cannot be changed."
        raise TypeError(msg)

    def delete(self, using: str | None = None, keep_parents: bool = False) -> NoReturn:  # noqa: ARG002  as Django has it
        """Refuse: what was decided cannot be taken away.

        Raises:
            TypeError: Always.
        """
        msg = "The audit is append-only: its rows cannot be deleted."
        raise TypeError(msg)


class CancelRequest(models.Model):
    """Somebody asked that a running job end as cancelled; insert-only, polled by the holder.

    It holds for one generation. Whoever commits first wins: when the job ended otherwise, the request was too late.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job_id = models.UUIDField()
    generation = models.PositiveIntegerField()
    action_id = models.UUIDField()
    created_at = InstantField()

    class Meta:
        """One per job and generation."""

        verbose_name = "cancel request"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["job_id", "generation"], name="django_jobs_cancel_once")]

    def __str__(self) -> str:
        return f"cancel {self.job_id}"


class Compensation(models.Model):
    """A new job that takes an applied effect back; the effect's own row is never rewritten.

    ``outcome`` is ``open`` until the job succeeds, or until somebody discards or cancels it (``void``): then another
    compensation may be asked for.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    effect = models.ForeignKey(
        SideEffect, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="compensations"
    )
    original_job_id = models.UUIDField()
    job_id = models.UUIDField()
    action_id = models.UUIDField()
    outcome = models.CharField(
        max_length=10, default=CompensationOutcome.OPEN.value, choices=[(o.value, o.value) for o in CompensationOutcome]
    )
    created_at = InstantField()
    closed_at = InstantField(null=True, blank=True)

    class Meta:
        """At most one per effect that is not void."""

        verbose_name = "compensation"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                fields=["effect"], condition=~Q(outcome="void"), name="django_jobs_compensation_once"
            ),
            models.UniqueConstraint(fields=["job_id"], name="django_jobs_compensation_job"),
            models.CheckConstraint(
                condition=Q(outcome="open", closed_at__isnull=True)
                | Q(outcome__in=["succeeded", "void"], closed_at__isnull=False),
                name="django_jobs_compensation_closed_once",
            ),
        ]
        indexes = [models.Index(fields=["original_job_id"], name="django_jobs_compensation_of")]

    def __str__(self) -> str:
        return f"compensation of {self.effect_id} ({self.outcome})"


class ReplayRequest(models.Model):
    """A replay of many dead letters, carried out by a worker at a pace; each item has its outcome.

    ``selection`` is JSON: ``{"ids": […]}`` or ``{"filter": {…}}``; ``acknowledged`` the JSON list of plan classes that
    the operator accepted. A dead letter that is newer than ``created_at`` is left alone.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    actor = models.CharField(max_length=150)
    owner = models.CharField(max_length=100)
    reason_code = models.CharField(max_length=20)
    reason = models.TextField()
    ticket = models.CharField(max_length=100, default="", blank=True)
    selection = models.TextField()
    acknowledged = models.TextField(default="[]")
    extra_attempts = models.PositiveSmallIntegerField(default=0)
    per_minute = models.PositiveIntegerField(default=60)
    canary = models.PositiveIntegerField(default=0)
    state = models.CharField(
        max_length=10, default=ReplayState.WAITING.value, choices=[(s.value, s.value) for s in ReplayState]
    )
    total = models.PositiveIntegerField()
    last_job_id = models.UUIDField(null=True, blank=True)
    lease_owner = models.UUIDField(null=True, blank=True)
    lease_expires_at = InstantField(null=True, blank=True)
    next_at = InstantField()
    created_at = InstantField()
    finished_at = InstantField(null=True, blank=True)
    stopped_because = models.TextField(default="", blank=True)

    class Meta:
        """Few rows."""

        verbose_name = "replay request"
        default_permissions = ("view",)
        permissions = [("cancel_replayrequest", "Can cancel a replay request")]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in ReplayState]), name="django_jobs_replay_state_known"
            )
        ]
        indexes = [
            models.Index(
                fields=["next_at"], condition=Q(state__in=["waiting", "running"]), name="django_jobs_replay_due"
            )
        ]

    def __str__(self) -> str:
        return f"replay of {self.total} ({self.state})"


class ReplayItem(models.Model):
    """What became of one job of a replay request."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    request = models.ForeignKey(
        ReplayRequest, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="items"
    )
    job_id = models.UUIDField()
    outcome = models.CharField(max_length=10, choices=[(o.value, o.value) for o in ReplayOutcome])
    why = models.TextField(default="", blank=True)
    created_at = InstantField()

    class Meta:
        """A job is replayed once per request, however often it is submitted."""

        verbose_name = "replay item"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["request", "job_id"], name="django_jobs_replay_item_once")]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.outcome}"
