"""Resources: what bounds them, what runs, and the page that changes their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.urls import URLPattern
from django.utils.safestring import SafeString

from django_jobs.admin.decisions import deciding_urls, decision_links
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import one_line, two_lines
from django_jobs.models import Resource
from django_jobs.operate.resource_status import resource_statuses


class ResourceAdmin(ReadingAdmin):
    """What job types share; ``jobs pause resource`` holds one back, and a button changes its bounds."""

    list_display = ("resource", "bounds", "in_use", "in_order")
    panels = ("decisions", "bounds", "in_use", "in_order", "details")

    def complete(self, rows: Sequence[Any]) -> None:
        """Read how all of them stand, once for the page."""
        found = {one.name: one for one in resource_statuses(using=self.alias)}
        for row in rows:
            row.status = found[row.name]

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    @admin.display(description="Decisions")
    def decisions(self, row: Resource) -> SafeString:
        """Offer what can be done about it."""
        return decision_links(self, row)

    @admin.display(description="Resource")
    def resource(self, row: Resource) -> str:
        """Show its name."""
        return one_line(row.name)

    @admin.display(description="Bounds")
    def bounds(self, row: Any) -> SafeString:
        """Show limit and rate, and who gave them."""
        status = row.status
        limit = "no limit" if status.limit is None else f"limit {status.limit}"
        rate = f", {status.rate}" if status.rate else ""
        return two_lines(f"{limit}{rate}", "given by hand" if status.by_hand else "as the settings say")

    @admin.display(description="Running")
    def in_use(self, row: Any) -> int:
        """Show how many jobs that use it run now."""
        return int(row.status.running)

    @admin.display(description="Note")
    def in_order(self, row: Any) -> str:
        """Say what holds it back."""
        return one_line(" ".join(row.status.lines) or "-", 400)
