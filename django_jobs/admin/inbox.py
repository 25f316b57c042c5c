"""Messages from outside: those that were taken, and those that were put aside."""

# ruff: noqa: ARG002  Django's signatures
from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.utils.safestring import SafeString

from django_jobs.admin.filters import AgeFilter
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import link, one_line, two_lines, when
from django_jobs.models import InboxMessage, Job, Quarantine


class ReceivedFilter(AgeFilter):
    """Fixed spans since a message was taken."""

    title = "received in"
    column = "received_at"


class InboxMessageAdmin(ReadingAdmin):
    """Messages that a consumer has taken, newest first."""

    list_display = ("message", "from_source", "of_job", "received", "kept")
    list_filter = (ReceivedFilter,)
    search_fields = ("id",)
    search_help_text = "Exactly: the id of a row or of the job that works on the message."

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Search by id and job."""
        return queryset.filter(Q(pk=key) | Q(job_id=key)) if key else queryset.none()

    @admin.display(description="Message")
    def message(self, message: InboxMessage) -> SafeString:
        """Show the message's id, and who took it."""
        return two_lines(message.message_id, f"for {message.consumer}")

    @admin.display(description="Source")
    def from_source(self, message: InboxMessage) -> str:
        """Show where it came from."""
        return one_line(message.source)

    @admin.display(description="Job")
    def of_job(self, message: InboxMessage) -> str:
        """Link the job that works on it."""
        return link(self.url("change", message.job_id, model=Job), message.job_id) if message.job_id else "-"

    @admin.display(description="Received")
    def received(self, message: InboxMessage) -> str:
        """Show when it was taken."""
        return when(message.received_at)

    @admin.display(description="Kept until")
    def kept(self, message: InboxMessage) -> str:
        """Show until when a repetition is known as one."""
        return when(message.keep_until)


class QuarantineAdmin(ReadingAdmin):
    """Messages that were put aside, newest first."""

    list_display = ("message", "from_source", "why", "received")
    list_filter = (AgeFilter,)
    wide = ("data",)

    @admin.display(description="Message")
    def message(self, message: Quarantine) -> SafeString:
        """Show the message's id, and for whom it was."""
        return two_lines(message.message_id, f"for {message.consumer}")

    @admin.display(description="Source")
    def from_source(self, message: Quarantine) -> str:
        """Show where it came from."""
        return one_line(message.source)

    @admin.display(description="Why")
    def why(self, message: Quarantine) -> str:
        """Show why it was not taken."""
        return one_line(message.reason, 200)

    @admin.display(description="Received")
    def received(self, message: Quarantine) -> str:
        """Show when it came."""
        return when(message.created_at)
