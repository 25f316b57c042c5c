"""Which pages there are, and how a site gets them."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin

from django_jobs import models
from django_jobs.admin.audit import OperatorActionAdmin, ReplayRequestAdmin
from django_jobs.admin.composition import BatchAdmin, ChainAdmin
from django_jobs.admin.dead_letters import DeadLetterAdmin
from django_jobs.admin.effects import SideEffectAdmin
from django_jobs.admin.events import DeliveryAdmin, OutboxEventAdmin
from django_jobs.admin.inbox import InboxMessageAdmin, QuarantineAdmin
from django_jobs.admin.jobs import JobAdmin
from django_jobs.admin.pauses import PauseAdmin
from django_jobs.admin.resources import ResourceAdmin
from django_jobs.admin.schedules import ScheduleAdmin
from django_jobs.admin.workers import WorkerAdmin

PAGES: dict[type[Any], type[ModelAdmin[Any]]] = {
    models.Job: JobAdmin,
    models.DeadLetter: DeadLetterAdmin,
    models.SideEffect: SideEffectAdmin,
    models.OutboxEvent: OutboxEventAdmin,
    models.Delivery: DeliveryAdmin,
    models.InboxMessage: InboxMessageAdmin,
    models.Quarantine: QuarantineAdmin,
    models.Worker: WorkerAdmin,
    models.Pause: PauseAdmin,
    models.Schedule: ScheduleAdmin,
    models.Resource: ResourceAdmin,
    models.Batch: BatchAdmin,
    models.Chain: ChainAdmin,
    models.OperatorAction: OperatorActionAdmin,
    models.ReplayRequest: ReplayRequestAdmin,
}


def register(site: AdminSite) -> None:
    """Put the pages on a site; those that it has already stay."""
    for model, page in PAGES.items():
        if not site.is_registered(model):
            site.register(model, page)
