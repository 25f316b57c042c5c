"""The list of jobs, and the page of one job: what to know, what happened, and what can be decided."""

# ruff: noqa: ARG002  Django's signatures
from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.decisions import deciding_urls, offers_for
from django_jobs.admin.filters import AgeFilter, ErrorClassFilter, NeedsFilter, QueueFilter, TypeFilter, chosen
from django_jobs.admin.finding import JOB_HELP, jobs_named
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import badge, link, one_line, pairs, plain, table, two_lines, when
from django_jobs.domain.states import JobState
from django_jobs.masking import redactor
from django_jobs.models import Attempt, DeadLetter, IdempotencyKey, Job, SideEffect
from django_jobs.operate.explain import told
from django_jobs.operate.explain_effects import state_of
from django_jobs.operate.history import JobHistory, history_of, row_as_dict
from django_jobs.operate.timeline import timeline
from django_jobs.operate.wording import LOSS, counted

UNCLEAR = ("in_flight", "ambiguous")
_IDENTITY = ("key_scope", "key", "previous_job_id")


class JobAdmin(ReadingAdmin):
    """Jobs, newest first."""

    list_display = ("job", "queue", "shown_state", "attempts_made", "last_error", "since")
    list_filter: ClassVar[tuple[type[admin.SimpleListFilter], ...]] = (
        chosen("state", "state", JobState),
        NeedsFilter,
        QueueFilter,
        TypeFilter,
        ErrorClassFilter,
        AgeFilter,
    )
    search_fields = ("id",)
    search_help_text = JOB_HELP
    panels = ("what_to_know", "timeline", "side_effects", "identity", "content", "stored")

    def get_urls(self) -> list[URLPattern]:
        """Add a page per decision."""
        return [*deciding_urls(self), *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show what to know and what happened; the rest is folded."""
        folded = {"identity": "Identity", "content": "Arguments and result", "stored": "All columns"}
        return [
            (folded.get(name), {"fields": [name], "classes": ["collapse"] if name in folded else []})
            for name in self.panels
        ]

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Search by id, key, subject and provider request id."""
        return jobs_named(queryset, text, key)

    def complete(self, rows: Sequence[Any]) -> None:
        """Read the keys of the jobs on a page, and how many of their attempts were lost: one query."""
        of_job = {"job_id": OuterRef("pk")}
        lost = Attempt.objects.lost().filter(**of_job).order_by().values("job_id").annotate(many=Count("pk"))
        found = (
            Job.objects.using(self.alias)
            .filter(pk__in=[job.pk for job in rows])
            .annotate(
                # of a job without content the key is known as long as it holds it
                holding=Subquery(IdempotencyKey.objects.filter(**of_job).values("key")),
                losses=Subquery(lost.values("many")),
            )
            .values_list("pk", "payload__key", "holding", "losses")
        )
        by_job = {key: (enqueued or holding or "", losses or 0) for key, enqueued, holding, losses in found}
        for job in rows:
            job.shown_key, job.losses = by_job.get(job.pk, ("", 0))

    @admin.display(description="Job")
    def job(self, job: Any) -> SafeString:
        """Show type, and key or subject."""
        return two_lines(job.job_type, job.shown_key or job.subject)

    @admin.display(description="Queue")
    def queue(self, job: Job) -> str:
        """Show the queue, and the priority if it is not the normal one."""
        return one_line(job.queue_name) + (f" ({job.priority:+d})" if job.priority else "")

    @admin.display(description="State")
    def shown_state(self, job: Job) -> SafeString:
        """Show the state, and how a dead letter was resolved."""
        return badge(job.state, f"({job.resolution})" if job.resolution else "")

    @admin.display(description="Attempts")
    def attempts_made(self, job: Any) -> str:
        """Show how often it was claimed, and losses as what they are."""
        if not job.losses:
            return str(job.fence)
        return format_html("{} <span>({}: {})</span>", job.fence, counted(job.losses, "loss", "losses"), LOSS)

    @admin.display(description="Last error")
    def last_error(self, job: Job) -> str:
        """Show the type of the last error; a dead letter's leads to its group."""
        if not job.error_type:
            return one_line(job.dead_reason.replace("_", " "))
        if job.state != JobState.DEAD_LETTERED or not job.error_fingerprint:
            return one_line(job.error_type)
        return link(group_url(self, job.job_type, job.error_fingerprint), job.error_type)

    @admin.display(description="Since")
    def since(self, job: Job) -> str:
        """Show since when it is as it is; of a waiting job, when it is due."""
        return when(_since(job))

    @admin.display(description="What to know")
    def what_to_know(self, job: Any) -> SafeString:
        """Tell where the job stands, as ``jobs explain`` does, and offer what can be decided."""
        history = self.history(job)
        story = {section.title: section.lines for section in told(history).sections}
        context = {
            "badge": badge(job.state, f"({job.resolution})" if job.resolution else ""),
            "next": [plain(line) for line in story["What is next"]],
            "warnings": [_warning(item.effect) for item in history.effects if item.effect.state in UNCLEAR],
            "losses": _losses(history),
            "replay": [plain(line) for line in story["Would a replay be safe"]],
            "intended": [plain(line) for line in story["What was intended"]],
            "offers": offers_for(self, job, job.looked_at_by),
        }
        return SafeString(render_to_string("admin/django_jobs/what_to_know.html", context))

    @admin.display(description="Timeline")
    def timeline(self, job: Any) -> SafeString:
        """Tell everything that happened, in the order of time."""
        whole = "all" in job.looked_at_by.GET
        context = {"line": timeline(self.history(job), whole=whole), "show": plain}
        return SafeString(render_to_string("admin/django_jobs/timeline.html", _shown(context)))

    @admin.display(description="Side effects")
    def side_effects(self, job: Any) -> SafeString:
        """List the side effects, and where each stands."""
        history = self.history(job)
        rows = [
            (
                link(self.url("change", item.effect.pk, model=SideEffect), item.effect.name),
                item.effect.business_key,
                item.effect.provider,
                badge(item.effect.state),
                state_of(item.effect),
                item.effect.provider_ref,
            )
            for item in (*history.effects, *history.adopted)
        ]
        columns = ("Effect", "Business key", "Provider", "State", "Meaning", "Provider reference")
        return table("Side effects", columns, rows)

    @admin.display(description="Identity")
    def identity(self, job: Any) -> SafeString:
        """Show what makes the job the same as another one."""
        history = self.history(job)
        payload = row_as_dict(history.payload, redactor()) if history.payload else {}
        key = row_as_dict(history.key, redactor()) if history.key else {}
        return pairs(
            {
                "id": job.pk,
                "payload_fingerprint": job.payload_fingerprint,
                "subject": job.subject,
                "correlation_id": job.correlation_id,
                **{name: payload.get(name) for name in _IDENTITY},
                **{f"holder: {name}": value for name, value in key.items()},
                "duplicates on record": len(history.duplicates),
            }
        )

    @admin.display(description="Arguments and result")
    def content(self, job: Any) -> SafeString:
        """Show arguments, context and result with their secrets masked."""
        history = self.history(job)
        if history.payload is None:
            return pairs({"arguments": history.content_removed or "missing"})
        shown = row_as_dict(history.payload, redactor())
        return pairs({name: shown[name] for name in ("arguments", "context", "result", "error_text")})

    @admin.display(description="All columns")
    def stored(self, job: Job) -> SafeString:
        """Show the job's row as it is."""
        return self.details(job)

    def history(self, job: Any) -> JobHistory:
        """Return what is stored about the job, read once per page."""
        if not hasattr(job, "read_history"):
            job.read_history = history_of(job, using=self.alias)
        return job.read_history  # type: ignore[no-any-return]


def group_url(page: ReadingAdmin, job_type: str, fingerprint: str, **more: str) -> str:
    """Return the address of the dead letters of one group."""
    parameters = {"list": "1", "job_type": job_type, "error": fingerprint or "none", **more}
    return f"{page.url('changelist', model=DeadLetter)}?{urlencode(parameters)}"


def _since(job: Job) -> datetime:
    if job.state in (JobState.SCHEDULED, JobState.QUEUED, JobState.FAILED):
        return job.available_at
    return job.finished_at or job.dead_at or job.created_at


def _warning(effect: SideEffect) -> str:
    name = f"“{effect.name}” ({effect.business_key}) at {effect.provider}"
    return plain(f"{name} may or may not have happened: {state_of(effect)}.")


def _losses(history: JobHistory) -> str:
    lost = [str(attempt.number) for attempt in history.attempts if attempt.outcome == "lost"]
    return f"{counted(len(lost), 'attempt')} lost (number {', '.join(lost[-10:])}): {LOSS}." if lost else ""


def _shown(context: dict[str, Any]) -> dict[str, Any]:
    line = context["line"]
    parts = [
        [
            {
                "at": entry.at,
                "instant": plain(entry.at),
                "kind": entry.kind,
                "grave": entry.grave,
                "text": plain(entry.text, 2000),
                "details": plain(entry.details) if entry.details else "",
            }
            for entry in entries
        ]
        for entries in (line.first, line.last)
    ]
    return {"first": parts[0], "last": parts[1], "left_out": line.left_out}
