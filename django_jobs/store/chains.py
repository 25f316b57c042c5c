"""Rows of chains: what follows is kept until the job before has succeeded, and is enqueued by that transaction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q

from django_jobs.domain.states import JobState
from django_jobs.models import Chain, ChainLink, IdempotencyKey, Job
from django_jobs.store.keys import PRUNED


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """How the job of a link stands; of a pruned one how it had ended, or ``PRUNED`` where nothing tells any more."""

    state: str
    resolution: str | None = None
    is_pruned: bool = False


def stands_of(links: Sequence[ChainLink], *, using: str) -> dict[uuid.UUID, Stand]:
    """Return how the jobs of the links of a chain stand, by job id.

    How a pruned job had ended is known from its key as long as that outlives it, and from the next link: only a
    success enqueues one.
    """
    positions = {link.job_id: link.position for link in links if link.job_id is not None}
    rows = Job.objects.using(using).filter(pk__in=positions).values_list("pk", "state", "resolution")
    found = {pk: Stand(state=JobState(state).value, resolution=resolution) for pk, state, resolution in rows}
    gone = {pk: position for pk, position in positions.items() if pk not in found}
    for pk, position in gone.items():
        followed = position + 1 in positions.values()
        found[pk] = Stand(state=JobState.SUCCEEDED.value if followed else PRUNED, is_pruned=True)
    kept = IdempotencyKey.objects.using(using).filter(pk__in=gone, final_state__isnull=False) if gone else ()
    for key in kept:
        found[key.job_id] = Stand(state=str(key.final_state), resolution=key.final_resolution, is_pruned=True)
    return found
