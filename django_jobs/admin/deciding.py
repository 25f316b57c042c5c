"""The page of a decision: GET shows what it would do and a form, POST acts; nothing else of the admin changes a job.

The form carries a token: a signature over the decision, its row, the digest of the plan that was shown, what was chosen
and who looked. A POST acts only on the plan that its token names, and the decision checks that again under the lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from django_jobs.admin.forms import ACKNOWLEDGE, Choices, OperatorForm
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.showing import pairs, plain, table
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, JobsError, OperatorError, RowBusyError
from django_jobs.operate.action import Decision, Done, Operator, Plan

SALT = "django_jobs.admin.deciding"
TOKEN = "state_token"  # noqa: S105  the name of a field
PRESERVED = "_changelist_filters"  # Django's name

LOOK = "This is what it would do with what you entered. Look at it, then confirm."
CHANGED = "This changed since you looked; nothing was done. Look at the present plan and decide again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A decision as a page offers it.

    Args:
        path: The last part of the address, for example ``replay``.
        label: What the button says.
        permission: The codename that it needs, without the app.
        make: Returns the decision about a row: ``make(row, using, choices)``.
        why_not: Says from the row alone why it cannot be decided now; empty: it can, as far as the row tells.
        choices: The form of what it needs to know beside who and why.
        answer: Makes the page that a POST that acted answers with; None: back to the list.
    """

    path: str
    label: str
    permission: str
    make: Callable[[Any, str, Mapping[str, Any]], Decision]
    why_not: Callable[[Any], str]
    choices: type[Choices] = Choices
    answer: Callable[[Deciding, Done], HttpResponse] | None = None

    def allows(self, request: HttpRequest) -> bool:
        """Say whether the user holds the permission."""
        return request.user.has_perm(f"django_jobs.{self.permission}")


class SeeOtherRedirect(HttpResponseRedirect):
    """What a POST answers: go on with a GET."""

    status_code = HTTPStatus.SEE_OTHER


@dataclass(slots=True, kw_only=True)
class Deciding:
    """One request to the page of one decision about one row."""

    page: ReadingAdmin
    offer: Offer
    request: HttpRequest
    row: Any
    status: int = HTTPStatus.OK
    note: str = ""
    errors: list[str] = field(default_factory=list)

    def look(self) -> HttpResponse:
        """Show the plan, if nothing has to be chosen first; writes nothing."""
        choices = self.offer.choices.untouched(self.row)
        unbound = self.offer.choices(row=self.row)
        try:
            plan = self._planned(choices)[1] if choices.is_valid() else None
        except OperatorError as error:
            self.errors.append(str(error))
            plan = None
        return self._show(unbound, self._operator_form(plan), plan, chosen=choices.text if plan else "")

    def act(self) -> HttpResponse:
        """Carry out what was seen and acknowledged, or show what is there now."""
        choices = self.offer.choices(self.request.POST, row=self.row)
        if not choices.is_valid():
            return self._show(choices, self._operator_form(None, again=True), None)
        try:
            decision, plan = self._planned(choices)
        except OperatorError as error:
            self.errors.append(str(error))
            return self._show(choices, self._operator_form(None, again=True), None)
        seen = self._seen(choices.text)
        if seen is None:
            self.note = LOOK
            return self._show(choices, self._operator_form(plan, again=True), plan, chosen=choices.text)
        if plan.refused or seen != plan.digest:
            return self._conflict(choices, plan, plan.refused or CHANGED)
        form = OperatorForm(self.request.POST, plan=plan)
        if not form.is_valid():
            return self._show(choices, form, plan, chosen=choices.text)
        return self._submit(decision, choices, form, seen)

    def _submit(self, decision: Decision, choices: Choices, form: OperatorForm, seen: str) -> HttpResponse:
        """Submit; under the lock the decision looks again, and what it finds counts."""
        try:
            done = decision.submit(self._operator(form), digest=seen)
        except (ActionChangedError, ActionRefusedError, RowBusyError) as error:
            plan = getattr(error, "plan", None)
            return self._conflict(choices, plan if isinstance(plan, Plan) else decision.plan(), str(error))
        except OperatorError as error:
            self.errors.append(str(error))
            return self._show(choices, form, decision.plan(), chosen=choices.text)
        return self._done(done)

    def _operator(self, form: OperatorForm) -> Operator:
        given = form.cleaned_data
        return Operator(
            actor=self.request.user.get_username(),
            owner=given["owner"],
            reason=given["reason"],
            reason_code=given["reason_code"],
            ticket=given["ticket"],
            user=self.request.user,
        )

    def _conflict(self, choices: Choices, plan: Plan, text: str) -> HttpResponse:
        self.status = HTTPStatus.CONFLICT
        self.errors.append(text)
        return self._show(choices, self._operator_form(plan, again=True), plan, chosen=choices.text)

    def _done(self, done: Done) -> HttpResponse:
        text = plain(done.message, 1000)
        self.log(done, f"{self.offer.label.rstrip('…')}: {text} (decision {done.action.pk})")
        if self.offer.answer is not None:
            return self.offer.answer(self, done)
        self.page.message_user(self.request, text, messages.SUCCESS)
        return SeeOtherRedirect(self._list_url())

    def _list_url(self) -> str:
        kept = self.request.GET.get(PRESERVED, "")
        return self.page.url("changelist") + (f"?{kept}" if kept else "")

    def _planned(self, choices: Choices) -> tuple[Decision, Plan]:
        try:
            decision = self.offer.make(self.row, self.page.alias, choices.cleaned_data)
        except JobsError as error:  # whatever refuses a value: it is the operator's, or the row's, and is told
            raise OperatorError(str(error)) from error
        if not all(self.request.user.has_perm(name) for name in decision.more_permissions()):
            raise PermissionDenied
        try:
            return decision, decision.plan()
        except LookupError as error:
            raise Http404(str(error)) from error

    def _operator_form(self, plan: Plan | None, *, again: bool = False) -> OperatorForm:
        """Return the form to fill in; ``again`` keeps what was written, but no acknowledgement."""
        initial: dict[str, Any] = {"owner": self.request.user.get_username()}
        if again:
            kept = {name: value for name, value in self.request.POST.items() if not name.startswith(ACKNOWLEDGE)}
            initial.update(kept)
        return OperatorForm(initial=initial, plan=plan)

    def _token(self, plan: Plan, chosen: str) -> str:
        return signing.dumps({**self._about(chosen), "digest": plan.digest}, salt=SALT)

    def _about(self, chosen: str) -> dict[str, str]:
        return {
            "path": self.offer.path,
            "about": self.about(),
            "user": str(self.request.user.pk),
            "choices": hashlib.sha256(chosen.encode("utf-8", "surrogatepass")).hexdigest(),
        }

    def _seen(self, chosen: str) -> str | None:
        """Return the digest of the plan that this user saw for this row and these choices, None if there is none."""
        try:
            token = signing.loads(self.request.POST.get(TOKEN, ""), salt=SALT)
        except signing.BadSignature:
            return None
        digest = token.pop("digest", None)
        return digest if token == self._about(chosen) else None

    def _show(self, choices: Choices, form: OperatorForm, plan: Plan | None, *, chosen: str = "") -> HttpResponse:
        forms = [choices, form]
        context = {
            **self.page.admin_site.each_context(self.request),
            "title": plain(plan.title) if plan else self.offer.label.rstrip("…"),
            "opts": self.page.opts,
            "media": self.page.media,
            "offer": self.offer,
            "plan": plan,
            "refused": plain(plan.refused) if plan and plan.refused else "",
            "lines": [plain(line) for line in plan.lines] if plan else [],
            "facts": list(_facts(plan.facts)) if plan else [],
            "forms": forms,
            "note": self.note,
            "errors": [plain(error) for error in self.errors],
            "has_errors": bool(self.errors) or any(item.is_bound and item.errors for item in forms),
            "token": self._token(plan, chosen) if plan and not plan.refused else "",
            "back": self.back(),
        }
        return TemplateResponse(self.request, "admin/django_jobs/deciding.html", context, status=self.status)

    def about(self) -> str:
        """Name what is decided about: a token of something else does not count."""
        return f"{self.row._meta.concrete_model._meta.label} {self.row.pk}"  # noqa: SLF001  Django's public door

    def log(self, done: Done, text: str) -> None:  # noqa: ARG002  what was made counts for others
        """Write the decision into Django's own log of the row."""
        self.page.log_change(self.request, self.row, text)

    def back(self) -> str:
        """Return the address of the page that led here."""
        kept = self.request.GET.get(PRESERVED, "")
        return self.page.url("change", self.row.pk) + (f"?{urlencode({PRESERVED: kept})}" if kept else "")


def respond(page: ReadingAdmin, offer: Offer, request: HttpRequest, object_id: str) -> HttpResponse:
    """Answer a request to the page of a decision.

    Raises:
        PermissionDenied: The user may not decide this, or not see the row.
        Http404: There is no such row.
    """
    if not offer.allows(request) or not page.has_view_permission(request):
        raise PermissionDenied
    row = page.get_object(request, object_id)
    if row is None:
        raise Http404(f"There is no {page.opts.verbose_name} {plain(object_id, 50)}.")
    if not page.has_view_permission(request, row):  # a project's page may show some rows only
        raise PermissionDenied
    deciding = Deciding(page=page, offer=offer, request=request, row=row)
    return deciding.act() if request.method == "POST" else page.in_time(request, deciding.look)


def _facts(facts: Mapping[str, Any]) -> Iterator[SafeString]:
    """Show facts: plain ones as pairs, lists of rows as tables."""
    single = {name: value for name, value in facts.items() if not _is_rows(value)}
    if single:
        yield pairs(single)
    for name, rows in facts.items():
        if _is_rows(rows):
            columns = list(dict.fromkeys(column for row in rows for column in row))
            cells = [[row.get(column) for column in columns] for row in rows]
            yield table(name.replace("_", " ").capitalize(), [column.replace("_", " ") for column in columns], cells)


def _is_rows(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(row, Mapping) for row in value)
