"""Which decisions each page offers, and the addresses of their pages."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.urls import URLPattern, path

from django_jobs.admin.deciding import Offer, respond
from django_jobs.admin.forms import ReplayChoices
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.domain.states import JobState
from django_jobs.models import Job
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay


def _only_dead(job: Job) -> str:
    if job.state != JobState.DEAD_LETTERED:
        return "Only a dead letter."
    return f"The dead letter was {job.resolution}." if job.resolution else ""


def _replay(job: Job, using: str, given: Mapping[str, Any]) -> Replay:
    return Replay(
        job.pk,
        using=using,
        extra_attempts=given["extra_attempts"],
        run_after=given["start_in"],
        useful_for=given["useful_for"],
    )


# What stands behind "…" opens a page; nothing is decided by a link.
OFFERS: dict[type[Model], tuple[Offer, ...]] = {
    Job: (
        Offer(
            path="replay",
            label="Replay…",
            permission=Replay.permission,
            make=_replay,
            why_not=_only_dead,
            choices=ReplayChoices,
        ),
        Offer(
            path="discard",
            label="Discard…",
            permission=Discard.permission,
            make=lambda job, using, _: Discard(job.pk, using=using),
            why_not=_only_dead,
        ),
    ),
}


def offers_of(model: type[Model]) -> tuple[Offer, ...]:
    """Return the decisions about rows of a model; those of jobs are those of dead letters too."""
    return OFFERS.get(model._meta.concrete_model or model, ())  # noqa: SLF001  Django's public door


def deciding_urls(page: ReadingAdmin) -> list[URLPattern]:
    """Return the addresses of the decisions of a page: ``<id>/replay/`` and the like."""
    options = page.opts
    return [
        path(
            f"<path:object_id>/{offer.path}/",
            page.admin_site.admin_view(functools.partial(respond, page, offer)),
            name=f"{options.app_label}_{options.model_name}_{_name(offer)}",
        )
        for offer in offers_of(page.model)
    ]


def _name(offer: Offer) -> str:
    return offer.path.replace("-", "_")


def offers_for(page: ReadingAdmin, row: Model, request: HttpRequest) -> list[dict[str, Any]]:
    """Return the decisions about a row: those that state and user allow with an address, the others with the reason."""
    kept = page.get_preserved_filters(request)
    offered = []
    for offer in offers_of(page.model):
        why_not = offer.why_not(row)
        if not why_not and not offer.allows(request):
            why_not = f"You may not: the permission {offer.permission} is missing."
        url = "" if why_not else page.url(_name(offer), row.pk) + (f"?{kept}" if kept else "")
        offered.append({"label": offer.label, "url": url, "why_not": why_not})
    return offered
