"""Workers: which live, what they serve, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Count, Min
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.decisions import deciding_urls, decision_links
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import badge, link, one_line, table, two_lines, when
from django_jobs.conf import get_settings
from django_jobs.domain.served import Served
from django_jobs.domain.states import JobState
from django_jobs.models import Job, Worker
from django_jobs.store.times import read_now

_SHOWN = 100


class WorkerAdmin(ReadingAdmin):
    """Workers, the one that started last first."""

    list_display = ("worker", "shown_state", "slots", "serves", "code", "beat", "oldest_lease")
    wide = ("job_types", "kinds")
    panels = ("decisions", "running", "details")

    def complete(self, rows: Sequence[Any]) -> None:
        """Count what each worker of a page holds: two queries."""
        now = read_now(self.alias)
        held = Job.objects.using(self.alias).filter(
            state=JobState.RUNNING, lease_owner__in=[worker.pk for worker in rows]
        )
        found = held.values("lease_owner").annotate(jobs=Count("pk"), first=Min("lease_expires_at")).order_by()
        by_worker = {row["lease_owner"]: row for row in found}
        for worker in rows:
            row = by_worker.get(worker.pk, {"jobs": 0, "first": None})
            worker.holds, worker.first_lease, worker.judged_at = row["jobs"], row["first"], now

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    @admin.display(description="Decisions")
    def decisions(self, row: Worker) -> SafeString:
        """Offer what can be done about it."""
        return decision_links(self, row)

    @admin.display(description="Worker")
    def worker(self, worker: Worker) -> SafeString:
        """Show name, host and process."""
        return two_lines(worker.name, f"{worker.host} pid {worker.pid}")

    @admin.display(description="State")
    def shown_state(self, worker: Any) -> SafeString:
        """Say whether it works, stops, has stopped or is silent."""
        if worker.stopped_at:
            return badge("stopped")
        if worker.judged_at - worker.heartbeat_at > get_settings().silent_after:
            return badge("silent")
        return badge("stopping" if worker.stopping_at or worker.drain_asked_at else "working")

    @admin.display(description="Slots")
    def slots(self, worker: Any) -> SafeString:
        """Show how many of its slots are used."""
        every = worker.slots
        return format_html('{0} of {1} <meter min="0" max="{1}" value="{0}">{0} of {1}</meter>', worker.holds, every)

    @admin.display(description="Queues")
    def serves(self, worker: Worker) -> str:
        """Show which queues it serves."""
        try:
            return one_line(str(Served.from_text(worker.queues)))
        except ValueError:
            return one_line(worker.queues)

    @admin.display(description="Code")
    def code(self, worker: Worker) -> str:
        """Show the version of its code."""
        return one_line(worker.code_version)

    @admin.display(description="Last beat")
    def beat(self, worker: Worker) -> str:
        """Show when it was last heard of."""
        return when(worker.heartbeat_at)

    @admin.display(description="Lease that ends first")
    def oldest_lease(self, worker: Any) -> str:
        """Show which of its leases ends first."""
        return when(worker.first_lease)

    @admin.display(description="Runs")
    def running(self, worker: Worker) -> SafeString:
        """List what it runs."""
        held = Job.objects.using(self.alias).filter(state=JobState.RUNNING, lease_owner=worker.pk)
        rows = [
            (link(self.url("change", job.pk, model=Job), job.job_type), job.pk, job.fence, job.lease_expires_at)
            for job in held.order_by("-pk")[:_SHOWN]
        ]
        return table(f"What it runs (up to {_SHOWN})", ("Job type", "Job", "Attempt", "Lease until"), rows)
