"""Exact search by form: each form has an index, and nothing is searched that has none."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q, QuerySet

from django_jobs.define import registry
from django_jobs.domain.identity import scope_text
from django_jobs.models import Attempt, IdempotencyKey, OutboxEvent, SideEffect

JOB_HELP = (
    "Exactly: the id of a job, attempt, side effect or event; an idempotency key; a subject such as order:42; "
    "a provider request id."
)
_MOST = 100  # jobs that one provider request id can name


def jobs_named(queryset: QuerySet[Any], text: str, key: uuid.UUID | None) -> QuerySet[Any]:
    """Return the jobs that a text names: by id, key, subject or provider request id."""
    using = queryset.db
    if key is not None:
        return queryset.filter(pk__in=[key, *_of_rows(key, using)])
    ids = [*_holders(text, using), *_of_request(text, using)]
    return queryset.filter(Q(subject=text) | Q(pk__in=ids) if ids else Q(subject=text))


def _of_rows(key: uuid.UUID, using: str) -> list[uuid.UUID]:
    found: list[uuid.UUID | None] = []
    for model in (Attempt, SideEffect, OutboxEvent):
        found += model._default_manager.using(using).filter(pk=key).values_list("job_id", flat=True)  # noqa: SLF001
    return [job_id for job_id in found if job_id is not None]


def scopes() -> list[str]:
    """Return the scopes of keys that this code knows, of jobs without a tenant."""
    found = [definition for _, definition in registry.definitions()]
    declared = {definition.options.key_scope for definition in found}
    own = {definition.oldest_name for definition in found}  # of messages
    return sorted(scope_text("", scope) for scope in declared | own)


def _holders(text: str, using: str) -> list[uuid.UUID]:
    keys = IdempotencyKey.objects.using(using).filter(scope__in=scopes(), key=text)
    return list(keys.values_list("job_id", flat=True)[:_MOST])


def _of_request(text: str, using: str) -> list[uuid.UUID]:
    effects = SideEffect.objects.using(using).filter(provider_request_id=text)
    return list(effects.values_list("job_id", flat=True)[:_MOST])
