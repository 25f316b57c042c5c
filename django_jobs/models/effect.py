"""Side effects, the requests that were sent for them, and what was found out about them."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from django_jobs.domain.ids import uuid7
from django_jobs.domain.providers import Dedupe, Verdict
from django_jobs.domain.states import EffectState, SendOutcome
from django_jobs.models.attempt import Attempt
from django_jobs.models.fields import InstantField
from django_jobs.models.job import Job


class SideEffect(models.Model):
    """One business act at one provider: unique on tenant, provider, business key and name, across jobs.

    The provider's guarantee is frozen here when the effect is first intended, so that a later change of the code cannot
    change what was promised for it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, related_name="effects")
    tenant = models.CharField(max_length=64, default="", blank=True)
    provider = models.CharField(max_length=200)
    business_key = models.CharField(max_length=255)
    name = models.CharField(max_length=200)
    operation = models.CharField(max_length=200, default="", db_default="", blank=True)  # "": recorded by older code
    state = models.CharField(max_length=12, default=EffectState.PLANNED.value)
    revision = models.BigIntegerField(default=1)
    required = models.BooleanField(default=True)
    on_ambiguous = models.CharField(max_length=8, default="review")
    owner = models.CharField(max_length=100, default="", blank=True)
    epoch = models.PositiveIntegerField(default=0)
    request = models.TextField()
    request_digest = models.CharField(max_length=67)
    dedupe = models.CharField(max_length=8, choices=[(d.value, d.value) for d in Dedupe])
    key_lifetime_seconds = models.FloatField(null=True, blank=True)
    key_alphabet = models.CharField(max_length=8, default="ascii", db_default="ascii")
    key_max_length = models.PositiveIntegerField(default=255, db_default=255)
    caches_failures = models.BooleanField(default=False, db_default=False)
    can_reconcile = models.BooleanField(default=False)
    settle_seconds = models.FloatField(default=0)
    visible_after_seconds = models.FloatField(default=0)
    retry_policy = models.TextField(default="{}")
    provider_ref = models.CharField(max_length=255, default="", blank=True)
    provider_request_id = models.CharField(max_length=255, default="", blank=True, db_index=True)
    result = models.TextField(default="{}")
    waiting_since = InstantField(null=True, blank=True)
    needs_review = models.BooleanField(default=False)
    review_reason = models.TextField(default="", blank=True)
    resolved_by = models.CharField(max_length=16, default="", blank=True)
    resolved_at = InstantField(null=True, blank=True)
    created_at = InstantField()

    class Meta:
        """The business key is what keeps two jobs from acting twice."""

        verbose_name = "side effect"
        default_permissions = ("view",)
        permissions = [
            ("resolve_sideeffect", "Can decide by hand whether a side effect was applied"),
            ("compensate_sideeffect", "Can take an applied side effect back"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "provider", "business_key", "name"], name="django_jobs_effect_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in EffectState]), name="django_jobs_effect_state_known"
            ),
            models.CheckConstraint(
                condition=(Q(state__in=["succeeded", "abandoned"]) & Q(resolved_at__isnull=False) & ~Q(resolved_by=""))
                | (~Q(state__in=["succeeded", "abandoned"]) & Q(resolved_at__isnull=True, resolved_by="")),
                name="django_jobs_effect_resolved",
            ),
            models.CheckConstraint(
                condition=Q(on_ambiguous__in=["review", "resend", "accept"]), name="django_jobs_effect_on_ambiguous"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.business_key} ({self.state})"


class Send(models.Model):
    """One physical request. Open until evidence arrives; a confirmed one never changes."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    effect = models.ForeignKey(SideEffect, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="sends")
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")
    attempt = models.ForeignKey(Attempt, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="sends")
    fence = models.BigIntegerField()
    number = models.PositiveIntegerField()
    epoch = models.PositiveIntegerField()
    provider_key = models.CharField(max_length=255)
    request_digest = models.CharField(max_length=67)
    started_at = InstantField()
    deadline_at = InstantField()  # after it this process writes no byte of the request
    settled_at = InstantField()  # after it the provider cannot apply the request any more
    finished_at = InstantField(null=True, blank=True)
    outcome = models.CharField(max_length=12, null=True, blank=True)  # noqa: DJ001  null means open
    status = models.IntegerField(null=True, blank=True)
    provider_ref = models.CharField(max_length=255, default="", blank=True)
    provider_request_id = models.CharField(max_length=255, default="", blank=True)
    replayed = models.BooleanField(default=False)
    permanent = models.BooleanField(default=False)
    key_is_burnt = models.BooleanField(default=False)
    reason = models.TextField(default="", blank=True)

    class Meta:
        """Sends are numbered without gaps within their effect."""

        verbose_name = "send"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["effect", "number"], name="django_jobs_send_number"),
            models.CheckConstraint(
                condition=Q(outcome__isnull=True) | Q(outcome__in=[o.value for o in SendOutcome]),
                name="django_jobs_send_outcome_known",
            ),
            models.CheckConstraint(
                condition=Q(deadline_at__gt=F("started_at"), settled_at__gte=F("deadline_at")),
                name="django_jobs_send_times_in_order",
            ),
        ]

    def __str__(self) -> str:
        return f"send {self.number} of {self.effect_id}"


class Reconciliation(models.Model):
    """One question to a provider about what happened, and its answer; insert-only."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    effect = models.ForeignKey(SideEffect, models.DO_NOTHING, db_constraint=False, related_name="reconciliations")
    attempt_id = models.UUIDField(null=True, blank=True)
    actor = models.CharField(max_length=150, default="", blank=True)
    created_at = InstantField()
    verdict = models.CharField(max_length=12, choices=[(v.value, v.value) for v in Verdict])
    is_final = models.BooleanField(default=False)
    provider_ref = models.CharField(max_length=255, default="", blank=True)
    evidence = models.TextField(default="{}")

    class Meta:
        """Read by effect."""

        verbose_name = "reconciliation"
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.verdict} for {self.effect_id}"


class EffectAdoption(models.Model):
    """A job that took the receipt of an effect which another job had caused."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    effect = models.ForeignKey(
        SideEffect, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="adoptions"
    )
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, related_name="adoptions")
    attempt_id = models.UUIDField()
    created_at = InstantField()

    class Meta:
        """A job adopts an effect once."""

        verbose_name = "effect adoption"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["effect", "job"], name="django_jobs_adoption_once")]

    def __str__(self) -> str:
        return f"{self.job_id} adopted {self.effect_id}"


class EffectStake(models.Model):
    """A job that asked for an effect which another job owns: it may not succeed as if it had never asked.

    Written when another job takes over what this one had planned or sent (``owned``), and when this one asks and gets
    no receipt. ``required`` is what the job itself declared; ``attempt_id`` is the attempt that asked last (null: it
    sent nothing). It counts until the job owns the effect again or has adopted its receipt.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    effect = models.ForeignKey(
        SideEffect, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="stakes"
    )
    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False, related_name="stakes")
    attempt_id = models.UUIDField(null=True, blank=True)
    required = models.BooleanField(default=True)
    owned = models.BooleanField(default=False)
    created_at = InstantField()

    class Meta:
        """A job has one stake in an effect."""

        verbose_name = "effect stake"
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["effect", "job"], name="django_jobs_stake_once")]

    def __str__(self) -> str:
        return f"{self.job_id} asked for {self.effect_id}"
