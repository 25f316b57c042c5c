"""Side effects: what was sent where, and what is known about it."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.template.loader import render_to_string
from django.urls import URLPattern
from django.utils.safestring import SafeString

from django_jobs.admin.decisions import deciding_urls, offers_for
from django_jobs.admin.filters import AgeFilter, chosen
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import badge, link, one_line, plain, table, two_lines, when
from django_jobs.domain.states import EffectState
from django_jobs.masking import redactor
from django_jobs.models import Compensation, EffectAdoption, Job, OperatorAction, Reconciliation, Send, SideEffect
from django_jobs.operate.explain_effects import answer, found, state_of

UNCLEAR = (EffectState.IN_FLIGHT, EffectState.AMBIGUOUS)


class SideEffectAdmin(ReadingAdmin):
    """Side effects, newest first."""

    list_display = ("effect", "provider_name", "shown_state", "review", "request_id", "of_job", "since")
    list_filter = (chosen("state", "state", EffectState), AgeFilter)
    search_fields = ("id",)
    search_help_text = "Exactly: the id of an effect, a send or a job; a provider request id."
    wide = ("request", "result", "retry_policy", "review_reason")
    panels = ("what_to_know", "requests", "questions", "decided", "details")

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Search by id, job and provider request id."""
        if key is None:
            return queryset.filter(provider_request_id=text)
        sends = Send.objects.using(queryset.db).filter(pk=key).values_list("effect_id", flat=True)
        return queryset.filter(Q(pk__in=[key, *sends]) | Q(job_id=key))

    @admin.display(description="Effect")
    def effect(self, effect: SideEffect) -> SafeString:
        """Show its name and business key."""
        return two_lines(effect.name, effect.business_key)

    @admin.display(description="Provider")
    def provider_name(self, effect: SideEffect) -> str:
        """Show the provider."""
        return one_line(effect.provider)

    @admin.display(description="State")
    def shown_state(self, effect: SideEffect) -> SafeString:
        """Show the state, and what it means."""
        return badge(effect.state)

    @admin.display(description="Review")
    def review(self, effect: SideEffect) -> str:
        """Say whether a human has to look."""
        return "waits for a human" if effect.needs_review else "-"

    @admin.display(description="Provider request id")
    def request_id(self, effect: SideEffect) -> str:
        """Show by what the provider knows the request."""
        return one_line(effect.provider_request_id)

    @admin.display(description="Job")
    def of_job(self, effect: SideEffect) -> SafeString:
        """Link the job that owns the effect."""
        return link(self.url("change", effect.job_id, model=Job), effect.job_id)

    @admin.display(description="Since")
    def since(self, effect: SideEffect) -> str:
        """Show since when its state is known, or when it was planned."""
        return when(effect.resolved_at or effect.created_at)

    @admin.display(description="What to know")
    def what_to_know(self, effect: Any) -> SafeString:
        """Say what is known, and what can be decided."""
        context = {
            "badge": badge(effect.state),
            "lines": [plain(f"{effect.name} ({effect.business_key}) at {effect.provider}: {state_of(effect)}.")],
            "job": self.of_job(effect),
            "warning": _warning(effect),
            "offers": offers_for(self, effect, effect.looked_at_by),
        }
        return SafeString(render_to_string("admin/django_jobs/effect.html", context))

    @admin.display(description="Requests")
    def requests(self, effect: SideEffect) -> SafeString:
        """List the requests that were sent."""
        mask = redactor()
        rows = [
            (
                send.number,
                send.epoch,
                link(self.url("change", send.job_id, model=Job), send.job_id),
                send.fence,
                send.started_at,
                answer(send, mask),
                send.provider_key,
            )
            for send in Send.objects.using(self.alias).filter(effect_id=effect.pk).order_by("number")
        ]
        return table("Requests", ("Number", "Epoch", "Job", "Attempt", "Sent", "Answer", "Key"), rows)

    @admin.display(description="Questions")
    def questions(self, effect: SideEffect) -> SafeString:
        """List what the provider was asked, and who took over the receipt."""
        mask = redactor()
        rows = [
            (row.created_at, row.actor or row.attempt_id, found(row), mask.text(row.evidence))
            for row in Reconciliation.objects.using(self.alias).filter(effect_id=effect.pk).order_by("id")
        ]
        adopted = [
            (row.created_at, link(self.url("change", row.job_id, model=Job), row.job_id), "took the receipt", "")
            for row in EffectAdoption.objects.using(self.alias).filter(effect_id=effect.pk).order_by("id")
        ]
        return table("Questions and adoptions", ("When", "By", "Found", "Evidence"), [*rows, *adopted])

    @admin.display(description="Decisions")
    def decided(self, effect: SideEffect) -> SafeString:
        """List what people decided, and compensations."""
        actions = OperatorAction.objects.using(self.alias).filter(effect_id=effect.pk).defer("plan").order_by("id")
        rows: list[tuple[Any, ...]] = [
            (row.created_at, row.action, row.actor, row.owner, row.reason, "") for row in actions
        ]
        for row in Compensation.objects.using(self.alias).filter(effect_id=effect.pk).order_by("id"):
            job = link(self.url("change", row.job_id, model=Job), row.job_id)
            rows.append((row.created_at, f"compensation: {row.outcome}", "", "", "", job))
        return table("Decisions", ("When", "What", "By", "Owner", "Reason", "Job"), rows)


def _warning(effect: SideEffect) -> str:
    if effect.needs_review:
        return f"Waits for a human: {plain(effect.review_reason)}"
    return "Whether it was applied is not known." if effect.state in UNCLEAR else ""
