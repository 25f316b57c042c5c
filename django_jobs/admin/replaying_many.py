"""The replay of many from the list of dead letters: what was ticked, or all that a filter finds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from django_jobs.admin.deciding import Deciding, Offer
from django_jobs.admin.filters import SPANS
from django_jobs.admin.forms import ManyChoices
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import plain
from django_jobs.exceptions import OperatorError
from django_jobs.models import ReplayRequest
from django_jobs.operate.action import Done
from django_jobs.operate.listing import parse_span
from django_jobs.operate.replay_many import ReplayMany
from django_jobs.operate.selection import Selection, selection_from
from django_jobs.store.times import read_now

# A filter of the list, and the name that the selection has for it.
_FILTERS = {
    "queue": "queue",
    "job_type": "job_type",
    "reason": "dead_reason",
    "error": "error_fingerprint",
    "error_class": "error_class",
}
NO_ERROR = "none"


def _make(selection: Selection, using: str, given: Mapping[str, Any]) -> ReplayMany:
    return ReplayMany(selection, using=using, **given)


MANY = Offer(
    path="replay",
    label="Replay these…",
    permission=ReplayMany.permission,
    make=_make,
    why_not=lambda _: "",
    choices=ManyChoices,
)


class DecidingMany(Deciding):
    """The page of a replay of many: its row is a selection."""

    def about(self) -> str:
        """Name the selection."""
        return json.dumps(self.row.as_dict(), sort_keys=True)

    def log(self, done: Done, text: str) -> None:
        """Write the decision into the log of the request that it made."""
        request = ReplayRequest.objects.using(self.page.alias).get(pk=done.details["request"])
        self.page.log_change(self.request, request, text)

    def back(self) -> str:
        """Return to the list."""
        return f"{self.page.url('changelist')}?list=1"


def address(page: ReadingAdmin, *, ids: list[str] | None = None, filters: Mapping[str, str] | None = None) -> str:
    """Return where a replay of these is decided; a filter's age becomes an instant, which does not move any more.

    Raises:
        OperatorError: The list is searched or filtered in a way that names no group of jobs.
    """
    if ids:
        return f"{page.url('replay_many')}?{urlencode({'ids': ','.join(ids)})}"
    given = filters or {}
    found = {name: given[key] for key, name in _FILTERS.items() if given.get(key)}
    if given.get("q") or found.get("error_fingerprint") == NO_ERROR:
        msg = "What a search found, or jobs without an error, are replayed by ticking them."
        raise OperatorError(msg)
    if given.get("age") in dict(SPANS):
        found["dead_from"] = (read_now(page.alias) - parse_span(given["age"])).isoformat()
    if not found:
        msg = "Filter the list first, or tick jobs: without a filter this would be all dead letters."
        raise OperatorError(msg)
    return f"{page.url('replay_many')}?{urlencode(found)}"


def respond_many(page: ReadingAdmin, request: HttpRequest) -> HttpResponse:
    """Answer a request to the page of a replay of many.

    Raises:
        PermissionDenied: The user may not replay many, or not see dead letters.
    """
    if not MANY.allows(request) or not page.has_view_permission(request):
        raise PermissionDenied
    try:
        selection = _selection(request)
    except (OperatorError, ValueError) as error:
        context = {
            **page.admin_site.each_context(request),
            "title": "Replay of many",
            "media": page.media,
            "errors": [plain(str(error))],
            "has_errors": True,
            "refused": "nothing that can be replayed is named.",
            "back": f"{page.url('changelist')}?list=1",
        }
        return TemplateResponse(request, "admin/django_jobs/deciding.html", context, status=400)
    deciding = DecidingMany(page=page, offer=MANY, request=request, row=selection)
    return deciding.act() if request.method == "POST" else page.in_time(request, deciding.look)


def _selection(request: HttpRequest) -> Selection:
    if "ids" in request.GET:
        return Selection(ids=[uuid.UUID(text) for text in request.GET["ids"].split(",")])
    return selection_from(request.GET.dict())
