"""The page with a job's arguments and result as they are stored: made by a POST that is on record, kept by no cache."""

from __future__ import annotations

from django.http import HttpResponse
from django.template.response import TemplateResponse

from django_jobs.admin.deciding import Deciding, Offer
from django_jobs.admin.showing import plain, unmasked
from django_jobs.models import Job
from django_jobs.operate.action import Done
from django_jobs.operate.show_payload import ShowPayload


def shown(deciding: Deciding, done: Done) -> HttpResponse:
    """Show what was read; markup is escaped and what is not seen made visible, as everywhere."""
    context = {
        **deciding.page.admin_site.each_context(deciding.request),
        "title": f"Arguments and result of job {deciding.row.pk}",
        "opts": deciding.page.opts,
        "media": deciding.page.media,
        "message": plain(done.message),
        "decision": done.action.pk,
        "shown": [(name.capitalize(), unmasked(value)) for name, value in done.details.items()],
        "back": deciding.back(),
    }
    return TemplateResponse(deciding.request, "admin/django_jobs/payload.html", context)


def _gone(job: Job) -> str:
    return "" if job.content_removed_at is None else "They were removed."


SHOW_PAYLOAD = Offer(
    path="payload",
    label="Show unmasked…",
    permission=ShowPayload.permission,
    make=lambda job, using, _: ShowPayload(job.pk, using=using),
    why_not=_gone,
    answer=shown,
)
