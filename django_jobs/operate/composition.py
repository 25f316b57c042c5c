"""What a job belongs to, in plain English: its batch, its chain, and what its end means for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django_jobs.domain.states import JobState, OnDead
from django_jobs.models import Batch, ChainLink, Job, JobPayload
from django_jobs.operate.wording import counted, instant
from django_jobs.store.batches import find_batch
from django_jobs.store.chains import links_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The batch and the chain of a job; a job that is in none is asked for nothing."""

    job: Job
    batch: Batch | None
    link: ChainLink | None
    following: tuple[ChainLink, ...]
    length: int

    @property
    def next(self) -> ChainLink | None:
        """What is enqueued by its success."""
        return self.following[0] if self.following and self.following[0].job_id is None else None


def composition_of(job: Job, payload: JobPayload | None, *, using: str) -> Composition:
    """Read what a job belongs to."""
    batch = None if job.batch_id is None else find_batch(job.batch_id, using=using)
    links = links_of(payload.chain_id, using=using) if payload is not None and payload.chain_id is not None else []
    link = next((link for link in links if link.job_id == job.pk), None)
    following = tuple(other for other in links if link is not None and other.position > link.position)
    return Composition(job=job, batch=batch, link=link, following=following, length=len(links))


def belonging_lines(found: Composition) -> Iterator[str]:
    """Say what the job belongs to."""
    job, batch, link = found.job, found.batch, found.link
    if batch is not None:
        state = "open" if batch.closed_at is None else f"closed at {instant(batch.closed_at)}"
        follows = f"; {batch.callback_type} follows" if batch.callback_type else ""
        yield f"It is a member of batch {batch.pk}, which is {state}{follows}."
    elif job.batch_id is not None:
        yield f"It was a member of batch {job.batch_id}, which was pruned."
    if link is not None:
        yield f"It is link {link.position} of {found.length} of chain {link.chain_id}."


def following_lines(found: Composition) -> Iterator[str]:
    """Say what waits for the end of a job that has not ended."""
    job, batch, link = found.job, found.batch, found.next
    if job.finished_at is not None:
        return
    if link is not None and job.state == JobState.DEAD_LETTERED:
        yield (
            f"Chain {link.chain_id} stands still here: {_rest(found)} until it is replayed and succeeds. If it is "
            "discarded, nothing follows."
        )
    elif link is not None:
        yield f"Its success enqueues link {link.position} of its chain, {link.job_type}."
    if batch is not None and batch.closed_at is None:
        is_dead = job.state == JobState.DEAD_LETTERED
        waits = is_dead and batch.on_dead == OnDead.BLOCK
        yield from [f"Batch {batch.pk} stays open until it is replayed or settled."] if waits else []
        yield from [] if is_dead else [f"Batch {batch.pk} waits for its end."]


def replay_lines(found: Composition) -> Iterator[str]:
    """Say what the success after a replay means."""
    batch, link = found.batch, found.next
    if batch is not None and batch.closed_at is not None:
        again = f" {batch.callback_type} is not enqueued again." if batch.callback_type else ""
        yield f"It belongs to batch {batch.pk}, which is closed and stays so.{again}"
    elif batch is not None:
        yield f"It belongs to batch {batch.pk}, which waits for its end."
    if link is not None:
        yield f"Its success goes on with chain {link.chain_id} and enqueues link {link.position}, {link.job_type}."


def settling_lines(found: Composition) -> Iterator[str]:
    """Say what it means that the job is cancelled or discarded."""
    if found.batch is not None and found.batch.closed_at is None:
        yield f"Batch {found.batch.pk} does not wait for it any more."
    if found.next is not None:
        yield f"Chain {found.next.chain_id} ends with it: {_rest(found)}, ever."


def _rest(found: Composition) -> str:
    many = len(found.following)
    return f"{counted(many, 'link')} behind it {'are' if many > 1 else 'is'} not enqueued"
