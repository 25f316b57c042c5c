"""What people decided, and replays of many."""

# ruff: noqa: ARG002  Django's signatures
from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.decisions import deciding_urls, offers_for
from django_jobs.admin.filters import AgeFilter, chosen
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import badge, link, one_line, table, two_lines, when
from django_jobs.domain.states import ReplayState
from django_jobs.models import Delivery, Job, OperatorAction, OutboxEvent, ReplayItem, ReplayRequest, SideEffect

_ACTIONS = (
    "replay", "discard", "cancel", "run_now", "expire_lease", "resolve", "compensate", "redispatch",
    "discard_delivery", "reroute", "replay_many", "cancel_replay", "run_schedule", "bound_resource", "drain_worker",
    "show_payload",
)  # fmt: skip
_ITEMS = 200
_TARGETS = (
    ("job_id", Job),
    ("effect_id", SideEffect),
    ("event_id", OutboxEvent),
    ("delivery_id", Delivery),
    ("request_id", ReplayRequest),
)


class OperatorActionAdmin(ReadingAdmin):
    """The audit, newest first; it is written once."""

    list_display = ("what", "by", "why", "about", "decided")
    list_filter = (chosen("action", "action", _ACTIONS), AgeFilter)
    search_fields = ("id",)
    search_help_text = "Exactly: the id of a decision, of a job or of a side effect."
    wide = ("plan",)
    panels = ("targets", "details")

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Search by id, job and effect."""
        return queryset.filter(Q(pk=key) | Q(job_id=key) | Q(effect_id=key)) if key else queryset.none()

    @admin.display(description="Decision")
    def what(self, action: OperatorAction) -> SafeString:
        """Show the decision and its reason code."""
        return two_lines(action.action.replace("_", " "), action.reason_code.replace("_", " "))

    @admin.display(description="By")
    def by(self, action: OperatorAction) -> SafeString:
        """Show who decided, and who answers for it."""
        return two_lines(action.actor, f"for {action.owner}")

    @admin.display(description="Why")
    def why(self, action: OperatorAction) -> SafeString:
        """Show the reason and the ticket."""
        return two_lines(one_line(action.reason, 200), action.ticket)

    @admin.display(description="About")
    def about(self, action: OperatorAction) -> str:
        """Link the first of the rows that it was about."""
        for column, model in _TARGETS:
            key = getattr(action, column)
            if key is not None:
                return link(self.url("change", key, model=model), f"{model._meta.verbose_name} {key}", 80)  # noqa: SLF001
        return "-"

    @admin.display(description="When")
    def decided(self, action: OperatorAction) -> str:
        """Show when it was decided."""
        return when(action.created_at)

    @admin.display(description="About")
    def targets(self, action: OperatorAction) -> SafeString:
        """Link all rows that it was about."""
        rows = [
            (model._meta.verbose_name, link(self.url("change", key, model=model), key))  # noqa: SLF001
            for column, model in _TARGETS
            if (key := getattr(action, column)) is not None
        ]
        return table("About", ("What", "Id"), rows)


class ReplayRequestAdmin(ReadingAdmin):
    """Replays of many dead letters, newest first."""

    list_display = ("replay", "by", "why", "shown_state", "how_many", "asked")
    list_filter = (chosen("state", "state", ReplayState), AgeFilter)
    wide = ("selection", "acknowledged")
    panels = ("progress", "outcomes", "details")

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    @admin.display(description="Replay")
    def replay(self, request: ReplayRequest) -> str:
        """Show the request's id."""
        return str(request.pk)

    @admin.display(description="By")
    def by(self, request: ReplayRequest) -> SafeString:
        """Show who asked, and who answers for it."""
        return two_lines(request.actor, f"for {request.owner}")

    @admin.display(description="Why")
    def why(self, request: ReplayRequest) -> str:
        """Show the reason."""
        return one_line(request.reason, 200)

    @admin.display(description="State")
    def shown_state(self, request: ReplayRequest) -> SafeString:
        """Show how far it is."""
        return badge(request.state)

    @admin.display(description="Jobs")
    def how_many(self, request: ReplayRequest) -> int:
        """Show how many jobs it is about."""
        return request.total

    @admin.display(description="Asked")
    def asked(self, request: ReplayRequest) -> str:
        """Show when it was asked for."""
        return when(request.created_at)

    @admin.display(description="Progress")
    def progress(self, request: Any) -> SafeString:
        """Show how many jobs are done with, and what can be decided."""
        items = ReplayItem.objects.using(self.alias).filter(request_id=request.pk)
        by_outcome = dict(items.values_list("outcome").annotate(many=Count("pk")).order_by("outcome"))
        done = sum(by_outcome.values())
        told = ", ".join(f"{many} {outcome}" for outcome, many in by_outcome.items()) or "nothing yet"
        shown = format_html(
            '<p>{0} <progress max="{2}" value="{1}">{1} of {2}</progress> {1} of {2}: {3}</p>',
            badge(request.state), done, max(request.total, 1), told,
        )  # fmt: skip
        links = [
            format_html('<p><a class="dj-jobs-button" href="{}">{}</a></p>', offer["url"], offer["label"])
            for offer in offers_for(self, request, request.looked_at_by)
            if offer["url"]
        ]
        return SafeString("".join([shown, *links]))

    @admin.display(description="Outcome per job")
    def outcomes(self, request: ReplayRequest) -> SafeString:
        """List the last jobs that were looked at."""
        found = ReplayItem.objects.using(self.alias).filter(request_id=request.pk).order_by("-pk")[:_ITEMS]
        rows = [
            (row.created_at, link(self.url("change", row.job_id, model=Job), row.job_id), row.outcome, row.why)
            for row in found
        ]
        return table(f"The last {_ITEMS} jobs", ("When", "Job", "Outcome", "Why"), rows)
