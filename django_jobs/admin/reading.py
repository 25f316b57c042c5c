"""What all pages share: they read, one page at a time, from the database that is written to, and for a bounded time."""

# ruff: noqa: ARG002  Django's signatures
from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db import router
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from django_jobs.admin.bounded import LONGEST, TooBroadError, bounded
from django_jobs.admin.paging import BoundedCount, KeysetChangeList
from django_jobs.admin.showing import one_line, pairs
from django_jobs.masking import redactor
from django_jobs.models import Job
from django_jobs.operate.history import row_as_dict

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

TOO_BROAD = 400
NAME = 150


class ReadingAdmin(_ModelAdmin):
    """A list with keyset paging and a page per row; nothing is added, changed or deleted here.

    A subclass names the columns that a list must not load (``wide``) and what a page shows (``panels``: methods that
    take the row). The first search field only switches the search box on: :meth:`matching` searches.
    """

    wide: ClassVar[Sequence[str]] = ()
    panels: ClassVar[Sequence[str]] = ("details",)
    no_filters: ClassVar[Sequence[str]] = ()  # parameters of a list that are no filters

    ordering = ("-pk",)
    sortable_by = ()
    list_per_page = 50
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedCount
    change_list_template = "admin/django_jobs/change_list.html"

    class Media:
        """One style sheet, no script."""

        css = {"all": ["django_jobs/admin.css"]}

    @property
    def alias(self) -> str:
        """The database of the jobs: what was just written must be seen."""
        return router.db_for_write(Job)

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        """Nobody adds rows here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes rows here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes rows here."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Read from the database that is written to."""
        return super().get_queryset(request).using(self.alias)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        """Page by the primary key."""
        return KeysetChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow the declared filters only: any other column could be searched from end to end."""
        return lookup in {getattr(item, "parameter_name", None) for item in self.list_filter or ()}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search for what an index finds at once."""
        text = search_term.strip()
        if not text:
            return queryset, False
        if not is_searchable(text):
            return queryset.none(), False
        return self.matching(queryset, text, as_uuid(text)), False

    def matching(self, queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
        """Return the rows that ``text`` names; ``key`` is the id that it spells, if it spells one."""
        return queryset.filter(pk=key) if key else queryset.none()

    def complete(self, rows: Sequence[Any]) -> None:
        """Read what the rows of one page show beside their own columns, in a fixed number of queries."""

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Show each panel below its own heading."""
        return [(None, {"fields": [name]}) for name in self.panels]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Show every panel, and let none be changed."""
        return tuple(self.panels)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Find the row by its id alone, and remember for its panels who looks."""
        row: Any = super().get_object(request, object_id)
        if row is not None:
            row.looked_at_by = request
        return row

    @admin.display(description="Stored")
    def details(self, row: Model) -> SafeString:
        """Show all columns, secrets masked."""
        return pairs(row_as_dict(row, redactor()))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show a list, in bounded time."""
        return self.in_time(request, lambda: super(ReadingAdmin, self).changelist_view(request, extra_context))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one row, in bounded time."""
        view = super().changeform_view
        return self.in_time(request, lambda: view(request, object_id, form_url, extra_context))

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Name the row in title and path as everything else is shown."""
        if context.get("original") is not None:
            named = Named(context["original"])
            context.update(original=named, subtitle=str(named))
        return super().render_change_form(request, context, *args, **kwargs)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Name the row in title and path as everything else is shown, in bounded time."""

        def view() -> HttpResponse:
            row = self.get_object(request, object_id) if self.has_view_permission(request) else None
            named = {} if row is None else {"object": Named(row), "title": f"Change history: {Named(row)}"}
            return super(ReadingAdmin, self).history_view(request, object_id, {**named, **(extra_context or {})})

        return self.in_time(request, view)

    def action_checkbox(self, obj: Any) -> Any:
        """Name the row for those who do not see as everything else is shown."""
        return super().action_checkbox(Named(obj))

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Name the row in Django's log as everything else is shown: what is in there stays."""
        return super().log_change(request, Named(obj), message)

    def in_time(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Make a page and render it while the database bounds its statements; say so if it took too long."""
        try:
            with bounded(self.alias):
                response = view()
                return response.render() if isinstance(response, TemplateResponse) else response
        except TooBroadError:
            context = {
                **self.admin_site.each_context(request),
                "title": "Too broad",
                "media": self.media,
                "seconds": int(LONGEST.total_seconds()),
                "back": self.url("changelist"),
            }
            return TemplateResponse(request, "admin/django_jobs/too_broad.html", context, status=TOO_BROAD)

    def url(self, name: str, *args: object, model: type[Model] | None = None) -> str:
        """Return the address of a page of this site: ``changelist``, ``change`` or what a page adds."""
        options = (model or self.model)._meta  # noqa: SLF001  Django's public door
        name = f"admin:{options.app_label}_{options.model_name}_{name}"
        return reverse(name, args=[str(value) for value in args], current_app=self.admin_site.name)


class Named(str):
    """A row by its name: secrets masked, what is not seen made visible; all else is asked of the row."""

    __slots__ = ("row",)

    row: Model

    def __new__(cls, row: Model) -> Named:
        """Take the name from the row."""
        named = super().__new__(cls, one_line(row, NAME))
        named.row = row
        return named

    def __getattr__(self, name: str) -> Any:
        return getattr(self.row, name)


def as_uuid(text: str) -> uuid.UUID | None:
    """Return the id that a text spells, None for any other text."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def is_searchable(text: str) -> bool:
    """Say whether a text can be stored at all: no NUL, no lone surrogate, not longer than any searched column."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text and len(text) <= 300
