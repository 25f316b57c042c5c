"""Dead letters: first their groups by error, then the jobs of a group."""

# ruff: noqa: ARG002  Django's signatures
from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from django_jobs.admin.deciding import SeeOtherRedirect
from django_jobs.admin.filters import AgeFilter, ErrorClassFilter, QueueFilter, TypeFilter, chosen, newer
from django_jobs.admin.jobs import JobAdmin, group_url
from django_jobs.admin.reading import is_searchable
from django_jobs.admin.replaying_many import MANY, NO_ERROR, address, respond_many
from django_jobs.admin.showing import one_line, when
from django_jobs.domain.states import DeadReason, JobState
from django_jobs.exceptions import OperatorError
from django_jobs.operate.dead_letters import WINDOW, Group, Groups, group_dead_letters
from django_jobs.operate.wording import counted

_SPANS = (("1h", "hour"), ("24h", "day"), ("7d", "week"))


class ErrorFilter(admin.SimpleListFilter):
    """The error of one group; given by the page of groups, never offered as a list."""

    title = "error"
    parameter_name = "error"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Show the given error as the one choice."""
        given = self.used_parameters.get(self.parameter_name)
        value = given[-1] if isinstance(given, list) else given
        return [(value, "jobs without an error" if value == NO_ERROR else "this error")] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the jobs with this error."""
        value = self.value()
        if value is None:
            return queryset
        if not is_searchable(value):
            return queryset.none()
        return queryset.filter(error_fingerprint="" if value == NO_ERROR else value)


class DeadAgeFilter(AgeFilter):
    """Fixed spans since a job became a dead letter."""

    title = "dead since"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what died lately; its id may be older."""
        return newer(queryset, self.value(), "dead_at", by_id=False) if self.value() else queryset


class DeadLetterAdmin(JobAdmin):
    """Groups of dead letters; with ``?list=1`` or any filter, the dead letters themselves."""

    list_display = ("job", "queue", "last_error", "reason", "attempts_made", "since")
    list_filter = (
        ErrorFilter,
        chosen("reason", "dead_reason", DeadReason, name="reason"),
        QueueFilter,
        TypeFilter,
        ErrorClassFilter,
        DeadAgeFilter,
    )
    no_filters = ("list",)
    actions = ("replay_ticked",)

    def get_urls(self) -> list[URLPattern]:
        """Add the page of a replay of many."""
        view = self.admin_site.admin_view(functools.partial(respond_many, self))
        return [path("replay/", view, name="django_jobs_deadletter_replay_many"), *super().get_urls()]

    def has_replay_many_permission(self, request: HttpRequest) -> bool:
        """Say who may replay many; Django asks before it offers the action, and before it runs it."""
        return MANY.allows(request)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Find a job by its id; who may not see all jobs finds dead letters only."""
        row = super().get_object(request, object_id, from_field)
        hidden = row is not None and row.state != JobState.DEAD_LETTERED
        return None if hidden and not request.user.has_perm("django_jobs.view_job") else row

    @admin.action(description="Replay…", permissions=["replay_many"])
    def replay_ticked(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Go to the page that decides about what was ticked, or about all that the list's filters find."""
        every = request.POST.get("select_across") == "1"
        try:
            if every:
                return SeeOtherRedirect(address(self, filters=request.GET.dict()))
            return SeeOtherRedirect(address(self, ids=request.POST.getlist(ACTION_CHECKBOX_NAME)))
        except OperatorError as error:
            self.message_user(request, str(error), messages.ERROR)
            return None

    @admin.display(description="Why")
    def reason(self, job: Any) -> str:
        """Show why it waits for a human."""
        return one_line(job.dead_reason.replace("_", " "))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Keep dead letters without a decision; other jobs are in the list of jobs."""
        return super().get_search_results(
            request, queryset.filter(state="dead_lettered", resolution__isnull=True), search_term
        )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the groups first."""
        if request.GET or request.method == "POST":
            return super().changelist_view(request, {**(extra_context or {}), "jobs_links": self._links(request)})
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self.in_time(request, lambda: self._groups_view(request, extra_context))

    def _links(self, request: HttpRequest) -> list[tuple[str, str]]:
        links = [(self.url("changelist"), "Groups by error")]
        if MANY.allows(request):
            with contextlib.suppress(OperatorError):
                links.append((address(self, filters=request.GET.dict()), "Replay all that match…"))
        return links

    def _groups_view(self, request: HttpRequest, extra_context: dict[str, Any] | None) -> TemplateResponse:
        found = group_dead_letters(using=self.alias)
        context = {
            **self.admin_site.each_context(request),
            "title": "Dead letters by error",
            "opts": self.opts,
            "media": self.media,
            "groups": list(self._shown(found)),
            "told": _told(found),
            "list_url": f"{self.url('changelist')}?list=1",
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_jobs/dead_letter_groups.html", context)

    def _shown(self, found: Groups) -> Iterator[dict[str, Any]]:
        for group in found.groups:
            yield {
                "error": one_line(group.error_type or group.dead_reason.replace("_", " "), 200),
                "text": one_line(group.error_text, 200) if group.error_text else "",
                "job_type": one_line(group.job_type, 200),
                "owner": one_line(group.owner, 100),
                "code": one_line(group.code_version, 40),
                "counts": list(self._counts(group)),
                "first": when(group.first),
                "last": when(group.last),
            }

    def _counts(self, group: Group) -> Iterator[tuple[int, str]]:
        for span, name in _SPANS:
            yield getattr(group, name), group_url(self, group.job_type, group.fingerprint, age=span)
        yield group.jobs, group_url(self, group.job_type, group.fingerprint)


def _told(found: Groups) -> str:
    if found.more:
        text = f"The newest {WINDOW:,} dead letters without a decision; there are older ones that are not counted here."
    else:
        text = f"All {counted(found.looked_at, 'dead letter')} without a decision."
    return text + (f" The largest {len(found.groups)} groups are listed; there are more." if found.more_groups else "")
