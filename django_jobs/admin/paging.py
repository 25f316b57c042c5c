"""Lists that cost the same however many rows there are and however deep one looks."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator

CURSOR = "before"  # the primary key of the last row of the page before
CAP = 10_000


class BoundedCount(_Paginator):
    """Counts the newest rows up to one more than ``CAP``: never a whole table."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, or ``CAP + 1`` for more than ``CAP``."""
        rows: Any = self.object_list
        return int(rows.order_by("-pk").values("pk")[: CAP + 1].count())


class KeysetChangeList(ChangeList):
    """A page of the newest rows, or of those older than a cursor; newest first."""

    model_admin: Any  # one of this room
    older = ""
    newest = ""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.cursor = _cursor(request.GET.get(CURSOR, ""))
        super().__init__(request, *args, **kwargs)
        self.params.pop(CURSOR, None)  # a new search starts at the newest

    def get_filters_params(self, params: Any = None) -> Any:
        """Leave out what is no filter."""
        found = super().get_filters_params(params)
        for name in (CURSOR, *self.model_admin.no_filters):
            found.pop(name, None)
        return found

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        """Drop the cursor: what is filtered otherwise starts at the newest."""
        kept = new_params is not None and CURSOR in new_params
        return super().get_query_string(new_params, [*(remove or ()), *(() if kept else (CURSOR,))])

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Load no wide column for a list."""
        return super().get_queryset(request, exclude_parameters).defer(*self.model_admin.wide)

    def get_results(self, request: HttpRequest) -> None:
        """Read one page by the primary key, and one row more to know whether there are others."""
        size = self.list_per_page
        paginator = self.model_admin.get_paginator(request, self.queryset, size)
        self.result_count = paginator.count
        self.full_result_count = self.result_count  # then Django says nothing of a whole
        self.show_full_result_count = False
        self.show_admin_actions = bool(self.result_count)
        self.can_show_all = self.multi_page = False
        self.paginator = paginator
        rows = self.queryset.order_by("-pk")
        if self.cursor is not None:
            rows = rows.filter(pk__lt=self.cursor)
        found = list(rows[: size + 1])
        page = found[:size]
        self.model_admin.complete(page)
        self.result_list = rows[:size]  # Django wants a queryset here; it is read already
        self.result_list._result_cache = page  # noqa: SLF001
        if len(found) > size:
            self.older = self.get_query_string({CURSOR: str(page[-1].pk)})
        if self.cursor is not None:
            self.newest = self.get_query_string()

    @property
    def counted(self) -> str:
        """How many rows match, in words."""
        number = f"more than {CAP:,}" if self.result_count > CAP else f"{self.result_count:,}"
        return f"{number} {self.opts.verbose_name if self.result_count == 1 else self.opts.verbose_name_plural}"


def _cursor(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
