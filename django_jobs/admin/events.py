"""Events, and how far each is on its way to each destination."""

# ruff: noqa: ARG002  Django's signatures
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
from django_jobs.admin.showing import badge, link, one_line, table, two_lines, when
from django_jobs.domain.states import DeliveryState
from django_jobs.models import Delivery, DeliveryAttempt, Job, OutboxEvent


class OutboxEventAdmin(ReadingAdmin):
    """Events, newest first, each with its deliveries."""

    list_display = ("event", "about", "routed", "of_job", "since")
    list_filter = (AgeFilter,)
    search_fields = ("id",)
    search_help_text = "Exactly: the id of an event or of the job that published it; a subject; an ordering key."
    wide = ("data",)
    panels = ("what_to_know", "deliveries", "details")

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Search by id, job, subject and ordering key."""
        return queryset.filter(Q(pk=key) | Q(job_id=key) if key else Q(subject=text) | Q(ordering_key=text))

    @admin.display(description="Event")
    def event(self, event: OutboxEvent) -> SafeString:
        """Show type, version and id."""
        return two_lines(f"{event.type} v{event.version}", event.pk)

    @admin.display(description="Subject")
    def about(self, event: OutboxEvent) -> SafeString:
        """Show what it is about, and its place in an order."""
        return two_lines(event.subject, f"{event.ordering_key} #{event.key_seq}" if event.ordering_key else "")

    @admin.display(description="Destinations")
    def routed(self, event: OutboxEvent) -> str:
        """Show to how many destinations it was routed; to none is legal and worth seeing."""
        return str(event.routed_count) if event.routed_count else "none"

    @admin.display(description="Published by")
    def of_job(self, event: OutboxEvent) -> str:
        """Link the job that published it."""
        return link(self.url("change", event.job_id, model=Job), event.job_id) if event.job_id else "-"

    @admin.display(description="Since")
    def since(self, event: OutboxEvent) -> str:
        """Show when it was published."""
        return when(event.created_at)

    @admin.display(description="What to know")
    def what_to_know(self, event: Any) -> SafeString:
        """Offer what can be decided."""
        context = {
            "badge": badge(f"{event.type} v{event.version}"),
            "lines": [] if event.routed_count else ["It was routed to no destination."],
            "job": self.of_job(event),
            "offers": offers_for(self, event, event.looked_at_by),
        }
        return SafeString(render_to_string("admin/django_jobs/effect.html", context))

    @admin.display(description="Deliveries")
    def deliveries(self, event: OutboxEvent) -> SafeString:
        """List the deliveries, and where each stands."""
        rows = [
            (
                link(self.url("change", row.pk, model=Delivery), row.destination, 250),
                badge(row.state),
                row.fence,
                row.available_at,
                row.published_at or row.dead_at,
                row.last_error or row.receipt,
            )
            for row in Delivery.objects.using(self.alias)
            .filter(event_id=event.pk)
            .order_by("destination", "redispatch")
        ]
        columns = ("Destination", "State", "Attempts", "Next try", "Ended", "Last answer")
        return table("Deliveries", columns, rows)


class DeliveryAdmin(ReadingAdmin):
    """Deliveries, newest first, each with its attempts."""

    list_display = ("to", "shown_state", "tries", "next_try", "answer", "of_event", "since")
    list_filter = (chosen("state", "state", DeliveryState), AgeFilter)
    search_fields = ("id",)
    search_help_text = "Exactly: the id of a delivery or of its event."
    wide = ()
    panels = ("what_to_know", "attempts_made", "details")

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Search by id and event."""
        return queryset.filter(Q(pk=key) | Q(event_id=key)) if key else queryset.none()

    @admin.display(description="Destination")
    def to(self, delivery: Delivery) -> SafeString:
        """Show the destination, and whether it goes again."""
        return two_lines(delivery.destination, f"again, number {delivery.redispatch}" if delivery.redispatch else "")

    @admin.display(description="State")
    def shown_state(self, delivery: Delivery) -> SafeString:
        """Show the state."""
        return badge(delivery.state, f"({delivery.dead_reason})" if delivery.dead_reason else "")

    @admin.display(description="Attempts")
    def tries(self, delivery: Delivery) -> int:
        """Show how often it was claimed."""
        return delivery.fence

    @admin.display(description="Next try")
    def next_try(self, delivery: Delivery) -> str:
        """Show when it goes next."""
        return when(delivery.available_at)

    @admin.display(description="Last answer")
    def answer(self, delivery: Delivery) -> str:
        """Show the last error, or the receipt."""
        return one_line(delivery.last_error or delivery.receipt)

    @admin.display(description="Event")
    def of_event(self, delivery: Delivery) -> SafeString:
        """Link the event."""
        return link(self.url("change", delivery.event_id, model=OutboxEvent), delivery.event_id)

    @admin.display(description="Since")
    def since(self, delivery: Delivery) -> str:
        """Show since when it is as it is."""
        return when(delivery.published_at or delivery.dead_at or delivery.created_at)

    @admin.display(description="What to know")
    def what_to_know(self, delivery: Any) -> SafeString:
        """Offer what can be decided."""
        context = {
            "badge": badge(delivery.state),
            "lines": [f"To {one_line(delivery.destination, 250)}: {one_line(delivery.last_error, 500)}"],
            "job": self.of_event(delivery),
            "offers": offers_for(self, delivery, delivery.looked_at_by),
        }
        return SafeString(render_to_string("admin/django_jobs/effect.html", {**context, "what": "Event"}))

    @admin.display(description="Attempts")
    def attempts_made(self, delivery: Delivery) -> SafeString:
        """List each try, its answer and how long it took."""
        rows = [
            (
                row.number,
                row.started_at,
                row.finished_at,
                row.outcome or "open",
                f"alone: {row.alone}" if row.alone else "",
                row.status,
                row.detail,
            )
            for row in DeliveryAttempt.objects.using(self.alias).filter(delivery_id=delivery.pk).order_by("number")
        ]
        return table("Attempts", ("Number", "Started", "Ended", "Outcome", "Company", "Status", "Detail"), rows)
