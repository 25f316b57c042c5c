"""Batches and chains: how they stand, what they wait for, and what followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.utils.safestring import SafeString

from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import badge, link, one_line, table, two_lines, when
from django_jobs.enqueue.chains import ChainResult, Link, read
from django_jobs.enqueue.closing import state_of
from django_jobs.models import Batch, Chain, Job
from django_jobs.store.batches import Standing

SHOWN = 100


class BatchAdmin(ReadingAdmin):
    """Batches, the newest first; a page counts its members and names those that it waits for."""

    list_display = ("batch", "stands", "callback_job", "answers", "made", "closed")
    wide = ("callback",)
    panels = ("members", "unfinished", "ended", "details")

    @admin.display(description="Batch")
    def batch(self, row: Batch) -> SafeString:
        """Show its id and its key."""
        return two_lines(row.pk, row.key)

    @admin.display(description="State")
    def stands(self, row: Batch) -> SafeString:
        """Say whether it is open, and what a dead letter means for it."""
        if row.closed_at is not None:
            return badge("closed", _counted(_settled(row)))
        return badge("open", "a dead letter keeps it open" if row.told_at else f"on_dead={row.on_dead}")

    @admin.display(description="Callback")
    def callback_job(self, row: Batch) -> str:
        """Link the job that followed, or name what will follow."""
        if row.callback_job_id is None:
            return one_line(row.callback_type)
        return link(self.url("change", row.callback_job_id, model=Job), row.callback_type)

    @admin.display(description="Owner")
    def answers(self, row: Batch) -> str:
        """Show who is told."""
        return one_line(row.owner)

    @admin.display(description="Made")
    def made(self, row: Batch) -> str:
        """Show when it was made."""
        return when(row.created_at)

    @admin.display(description="Closed")
    def closed(self, row: Batch) -> str:
        """Show when it was closed."""
        return when(row.closed_at)

    @admin.display(description="Members")
    def members(self, row: Batch) -> str:
        """Count the members, as they are or as they were when it was closed."""
        found = state_of(row.pk, using=self.alias)
        return "-" if found is None else _counted(found[1])

    @admin.display(description="Not finished")
    def unfinished(self, row: Batch) -> SafeString:
        """List what it waits for."""
        found = Job.objects.using(self.alias).filter(batch_id=row.pk, finished_at__isnull=True)
        return self._jobs(f"Members that have not finished (up to {SHOWN})", list(found[:SHOWN]))

    @admin.display(description="Ended last")
    def ended(self, row: Batch) -> SafeString:
        """List what ended last."""
        found = Job.objects.using(self.alias).filter(batch_id=row.pk, finished_at__isnull=False)
        return self._jobs(f"Members that ended last (up to {SHOWN})", list(found.order_by("-finished_at")[:SHOWN]))

    def _jobs(self, caption: str, jobs: Sequence[Job]) -> SafeString:
        rows = [
            (
                link(self.url("change", job.pk, model=Job), job.job_type),
                job.pk,
                badge(job.state, job.resolution or ""),
                job.error_type,
                job.finished_at,
            )
            for job in jobs
        ]
        return table(caption, ("Job type", "Job", "State", "Last error", "Finished"), rows)


class ChainAdmin(ReadingAdmin):
    """Chains, the newest first; a page shows each link."""

    list_display = ("chain", "length", "answers", "made")
    panels = ("stands", "links", "details")

    @admin.display(description="Chain")
    def chain(self, row: Chain) -> SafeString:
        """Show its id and its key."""
        return two_lines(row.pk, row.key)

    @admin.display(description="Owner")
    def answers(self, row: Chain) -> str:
        """Show who answers for it."""
        return one_line(row.owner)

    @admin.display(description="Made")
    def made(self, row: Chain) -> str:
        """Show when it was made."""
        return when(row.created_at)

    @admin.display(description="State")
    def stands(self, row: Chain) -> SafeString:
        """Say how it stands."""
        return badge(self._read(row).state)

    @admin.display(description="Links")
    def links(self, row: Chain) -> SafeString:
        """Show each link and its job."""
        rows = [(one.position, self._job(one), badge(one.state, _noted(one))) for one in self._read(row).links]
        return table("Links", ("Place", "Job type", "State"), rows)

    def _job(self, one: Link) -> Any:
        if one.job_id is None or one.is_pruned:
            return one_line(one.job_type)
        return link(self.url("change", one.job_id, model=Job), one.job_type)

    def _read(self, row: Any) -> ChainResult:
        """Read the links once for a page."""
        if not hasattr(row, "as_read"):
            row.as_read = read(row.pk, using=self.alias)
        found: ChainResult = row.as_read
        return found


def _noted(one: Link) -> str:
    return ", ".join(filter(None, (one.resolution, "its rows are pruned" if one.is_pruned else "")))


def _settled(row: Batch) -> Standing:
    return Standing(
        succeeded=row.succeeded or 0, cancelled=row.cancelled or 0, resolved=row.resolved or 0, dead=row.dead or 0
    )


def _counted(found: Standing) -> str:
    told = {
        "open": found.open,
        "succeeded": found.succeeded,
        "cancelled": found.cancelled,
        "resolved": found.resolved,
        "dead": found.dead,
    }
    named = [f"{many} {name}" for name, many in told.items() if many]
    return f"{found.total}: {', '.join(named)}" if named else "none"
