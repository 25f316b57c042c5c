"""Rows of chains: what follows is kept until the job before has succeeded, and is enqueued by that transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from django.db.models import Q

from django_jobs.domain.states import JobState
from django_jobs.models import Chain, ChainLink, Job


def create(chain: Chain, links: Sequence[ChainLink], *, using: str) -> uuid.UUID:
    """Store a chain in the transaction that is open; returns its id, or that of the chain which has its key."""
    Chain.objects.using(using).bulk_create([chain], ignore_conflicts=True)
    same = Q(key=chain.key) if chain.key else Q(pk=chain.pk)
    found: uuid.UUID = Chain.objects.using(using).filter(same).values_list("pk", flat=True).get()
    if found == chain.pk:
        ChainLink.objects.using(using).bulk_create(links)
    return found


def links_of(chain_id: uuid.UUID, *, using: str) -> list[ChainLink]:
    """Return the links of a chain, in their order."""
    return list(ChainLink.objects.using(using).filter(chain_id=chain_id).order_by("position"))


def next_link(chain_id: uuid.UUID, position: int, *, using: str) -> ChainLink | None:
    """Return what follows behind a position and is not enqueued."""
    rows = ChainLink.objects.using(using).filter(chain_id=chain_id, position=position + 1, job_id__isnull=True)
    return rows.first()


def note_enqueued(link: ChainLink, job_id: uuid.UUID, *, using: str) -> bool:
    """Say which job a link has become; its call is kept no longer. False when it had become one before."""
    rows = ChainLink.objects.using(using).filter(pk=link.pk, job_id__isnull=True)
    return bool(rows.update(job_id=job_id, call=""))


def states_of(links: Sequence[ChainLink], *, using: str) -> dict[uuid.UUID, tuple[str, str | None]]:
    """Return state and resolution of the jobs of these links; one that was pruned is missing."""
    ids = [link.job_id for link in links if link.job_id is not None]
    rows = Job.objects.using(using).filter(pk__in=ids).values_list("pk", "state", "resolution")
    return {pk: (JobState(state).value, resolution) for pk, state, resolution in rows}
