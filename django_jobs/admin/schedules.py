"""Schedules: when they tick next, what came of their ticks, and the page that runs one by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.urls import URLPattern
from django.utils.safestring import SafeString

from django_jobs.admin.decisions import deciding_urls, decision_links
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import link, one_line, table, two_lines, when
from django_jobs.models import Job, Schedule
from django_jobs.operate.schedule_status import status_of
from django_jobs.store.pauses import paused_schedules
from django_jobs.store.schedules import ticks_of
from django_jobs.store.times import read_now

TICKS = 50


class ScheduleAdmin(ReadingAdmin):
    """What is enqueued by itself; ``jobs pause schedule`` holds one back, and a button runs one by hand."""

    list_display = ("schedule", "when_it_ticks", "next_one", "last_job", "in_order")
    panels = ("decisions", "details", "ticks")

    def complete(self, rows: Sequence[Any]) -> None:
        """Read the pauses, and the time, once for the page."""
        held = paused_schedules(using=self.alias)
        now = read_now(self.alias)
        for row in rows:
            row.pause, row.seen_at = held.get(row.name), now

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    @admin.display(description="Decisions")
    def decisions(self, row: Schedule) -> SafeString:
        """Offer what can be done about it."""
        return decision_links(self, row)

    @admin.display(description="Schedule")
    def schedule(self, row: Schedule) -> SafeString:
        """Show its name and what it enqueues."""
        return two_lines(row.name, row.job_type)

    @admin.display(description="Ticks")
    def when_it_ticks(self, row: Schedule) -> SafeString:
        """Show its rule, and what becomes of ticks that were missed."""
        return two_lines(row.rule, f"missed: {row.missed}")

    @admin.display(description="Next")
    def next_one(self, row: Schedule) -> str:
        """Show when it ticks next, or who holds it back."""
        pause = row.pause  # type: ignore[attr-defined]
        return one_line(f"paused by {pause.actor}: {pause.reason}", 200) if pause else when(row.next_tick)

    @admin.display(description="Last job")
    def last_job(self, row: Schedule) -> str:
        """Link the job that it enqueued last."""
        return link(self.url("change", row.last_job_id, model=Job), row.last_job_id) if row.last_job_id else "-"

    @admin.display(description="Note")
    def in_order(self, row: Schedule) -> str:
        """Say what is out of order."""
        return one_line(status_of(row, None, row.seen_at).note or "-", 200)  # type: ignore[attr-defined]

    @admin.display(description="Ticks")
    def ticks(self, row: Schedule) -> SafeString:
        """Show what came of the last ticks."""
        rows = [
            (when(one.tick), one.outcome, one.job_id or "-", "by hand" if one.action_id else "", one_line(one.message))
            for one in ticks_of(row.name, most=TICKS, using=self.alias)
        ]
        return table(f"The last {TICKS} ticks", ("tick", "outcome", "job", "", "message"), rows)
