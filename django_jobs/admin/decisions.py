"""Which decisions each page offers, and the addresses of their pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_jobs.admin.deciding import Offer, respond
from django_jobs.admin.forms import BoundChoices, CompensateChoices, ReplayChoices, ResolveChoices
from django_jobs.admin.reading import ReadingAdmin
from django_jobs.admin.unmasking import SHOW_PAYLOAD
from django_jobs.domain.states import DeliveryState, EffectState, JobState, ReplayState
from django_jobs.models import Delivery, Job, OutboxEvent, ReplayRequest, Resource, Schedule, SideEffect, Worker
from django_jobs.models.job import WAITING
from django_jobs.operate.bound_resource import BoundResource
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.compensate import Compensate
from django_jobs.operate.discard import Discard
from django_jobs.operate.discard_delivery import DiscardDelivery, discard_refused
from django_jobs.operate.drain_worker import DrainWorker
from django_jobs.operate.expire_lease import ExpireLease
from django_jobs.operate.redispatch import Redispatch
from django_jobs.operate.replay import Replay
from django_jobs.operate.replay_many import CancelReplay
from django_jobs.operate.reroute import Reroute
from django_jobs.operate.resolve import Resolve
from django_jobs.operate.run_now import RunNow
from django_jobs.operate.run_schedule import RunSchedule


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


def _only(states: Collection[str], why: str) -> Callable[[Any], str]:
    return lambda row: "" if row.state in states else why


def _resolve(effect: SideEffect, using: str, given: Mapping[str, Any]) -> Resolve:
    return Resolve(
        effect.pk, given["verdict"], provider_ref=given["provider_ref"], evidence=given["evidence"], using=using
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
        Offer(
            path="cancel",
            label="Cancel…",
            permission=Cancel.permission,
            make=lambda job, using, _: Cancel(job.pk, using=using),
            why_not=_only((*WAITING, JobState.RUNNING), "Only a job that waits or runs."),
        ),
        Offer(
            path="run-now",
            label="Run now…",
            permission=RunNow.permission,
            make=lambda job, using, _: RunNow(job.pk, using=using),
            why_not=_only((JobState.SCHEDULED, JobState.FAILED), "Only a job that waits for its time."),
        ),
        Offer(
            path="expire-lease",
            label="End the lease…",
            permission=ExpireLease.permission,
            make=lambda job, using, _: ExpireLease(job.pk, using=using),
            why_not=_only((JobState.RUNNING,), "Only a running job."),
        ),
        SHOW_PAYLOAD,
    ),
    SideEffect: (
        Offer(
            path="resolve",
            label="Decide by hand…",
            permission=Resolve.permission,
            make=_resolve,
            why_not=_only(
                (EffectState.IN_FLIGHT, EffectState.AMBIGUOUS, EffectState.PLANNED), "It is known what happened."
            ),
            choices=ResolveChoices,
        ),
        Offer(
            path="compensate",
            label="Take back…",
            permission=Compensate.permission,
            make=lambda effect, using, given: Compensate(effect.pk, using=using, by_hand=given["by_hand"]),
            why_not=_only((EffectState.SUCCEEDED,), "Only an applied effect."),
            choices=CompensateChoices,
        ),
    ),
    OutboxEvent: (
        Offer(
            path="reroute",
            label="Route events of this type…",
            permission=Reroute.permission,
            make=lambda event, using, _: Reroute(event.type, version=event.version, using=using),
            why_not=lambda event: "It was routed." if event.routed_count else "",
        ),
    ),
    Delivery: (
        Offer(
            path="redispatch",
            label="Dispatch again…",
            permission=Redispatch.permission,
            make=lambda delivery, using, _: Redispatch(delivery.pk, using=using),
            why_not=_only(
                (DeliveryState.PUBLISHED, DeliveryState.DEAD_LETTERED, DeliveryState.DISCARDED), "It is on its way."
            ),
        ),
        Offer(
            path="discard",
            label="Discard…",
            permission=DiscardDelivery.permission,
            make=lambda delivery, using, _: DiscardDelivery(delivery.pk, using=using),
            why_not=discard_refused,
        ),
    ),
    Resource: (
        Offer(
            path="bound",
            label="Change the bounds…",
            permission=BoundResource.permission,
            make=lambda resource, using, given: BoundResource(
                resource.name, limit=given["limit"], rate=given["rate"], using=using
            ),
            why_not=lambda _: "",
            choices=BoundChoices,
        ),
    ),
    Schedule: (
        Offer(
            path="run",
            label="Run now…",
            permission=RunSchedule.permission,
            make=lambda schedule, using, _: RunSchedule(schedule.name, using=using),
            why_not=lambda _: "",
        ),
    ),
    Worker: (
        Offer(
            path="drain",
            label="Drain…",
            permission=DrainWorker.permission,
            make=lambda worker, using, _: DrainWorker(worker.pk, using=using),
            why_not=lambda worker: "It has stopped." if worker.stopped_at else "",
        ),
    ),
    ReplayRequest: (
        Offer(
            path="cancel",
            label="Cancel the rest…",
            permission=CancelReplay.permission,
            make=lambda request, using, _: CancelReplay(request.pk, using=using),
            why_not=_only((ReplayState.WAITING, ReplayState.RUNNING), "It is over."),
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


def decision_links(page: ReadingAdmin, row: Any) -> SafeString:
    """Return a link per decision about a row that whoever looks may make; the row knows who that is."""
    links = [
        format_html('<a class="dj-jobs-button" href="{}">{}</a>', offer["url"], offer["label"])
        for offer in offers_for(page, row, row.looked_at_by)
        if offer["url"]
    ]
    return SafeString(" ".join(links) or "-")
