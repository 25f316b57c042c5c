"""Batches and chains that cannot be; each returns the ids that must be named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobs import clock
from django_jobs.domain.ids import uuid7
from django_jobs.models import Batch, Chain, ChainLink, Job, JobPayload
from tests.integration.operate.corruptions import corrupts, unguard
from tests.integration.operate.stories import Story


def open_batch(**columns: Any) -> Batch:
    """Return a batch that was made a moment ago."""
    return Batch.objects.create(**{"on_dead": "block", "created_at": clock.now(), **columns})


def closed_batch(story: Story | None = None, **columns: Any) -> Batch:
    """Return a batch that was closed just now, with one member that succeeded, without a callback."""
    values = {"closed_at": clock.now(), "succeeded": 1, "cancelled": 0, "resolved": 0, "dead": 0, **columns}
    batch = open_batch(**values)
    join(batch, story or Story().claim().succeed())
    return batch


def join(batch: Batch, story: Story) -> Story:
    """Make the job of a story a member."""
    Job.objects.filter(pk=story.job.pk).update(batch_id=batch.pk)
    return story


def callback_of(batch: Batch) -> Story:
    """Write the job that followed a batch."""
    story = Story(key=f"batch:{batch.pk}")
    Batch.objects.filter(pk=batch.pk).update(callback_type=story.job.job_type, callback_job_id=story.job.pk)
    return story


def chain_of(*stories: Story | None) -> list[ChainLink]:
    """Write a chain whose links have become the jobs of these stories; None: not enqueued."""
    chain = Chain.objects.create(length=len(stories), created_at=clock.now())
    return [_link(chain, position, story) for position, story in enumerate(stories, start=1)]


def _link(chain: Chain, position: int, story: Story | None) -> ChainLink:
    if story is not None:
        JobPayload.objects.filter(pk=story.job.pk).update(chain_id=chain.pk, chain_position=position)
    return ChainLink.objects.create(
        chain=chain,
        position=position,
        job_type="shop.charge_order",
        job_id=story.job.pk if story else None,
        call="" if story else "{}",
    )


def done() -> Story:
    """A job that succeeded."""
    return Story().claim().succeed()


def dead() -> Story:
    """A dead letter that waits for a human."""
    return Story().claim().fail(error_class="permanent", dead="permanent")


def healthy_composition() -> None:
    """Write a batch in each state and chains at each of their places."""
    join(open_batch(), Story())
    join(open_batch(), dead())
    callback_of(closed_batch())
    join(closed_batch(on_dead="continue", dead=1), dead())
    chain_of(done(), Story(), None)
    chain_of(dead(), None)
    chain_of(done(), done())


@corrupts("B1")
def closed_batch_with_a_member_that_waits() -> set[Any]:
    batch = closed_batch(on_dead="continue", succeeded=2)
    join(batch, Story())
    return {batch.pk}


@corrupts("B1")
def closed_batch_with_a_dead_letter_that_kept_it_open() -> set[Any]:
    batch = closed_batch(dead=1)
    join(batch, dead())
    return {batch.pk}


@corrupts("B2")
def closed_batch_whose_callback_never_came() -> set[Any]:
    return {closed_batch(callback_type="shop.notify").pk}


@corrupts("B2")
def open_batch_that_names_a_callback() -> set[Any]:
    batch = join_open()
    story = Story()
    unguard(Batch)
    Batch.objects.filter(pk=batch.pk).update(callback_job_id=story.job.pk)
    return {batch.pk}


def join_open() -> Batch:
    """Return an open batch that waits for a job."""
    batch = open_batch()
    join(batch, Story())
    return batch


@corrupts("B2")
def callback_that_is_gone() -> set[Any]:
    batch = closed_batch()
    Batch.objects.filter(pk=batch.pk).update(callback_type="shop.notify", callback_job_id=uuid7())
    return {batch.pk}


@corrupts("B2")
def callback_of_another_type() -> set[Any]:
    batch = closed_batch()
    callback_of(batch)
    Batch.objects.filter(pk=batch.pk).update(callback_type="shop.else")
    return {batch.pk}


@corrupts("B2")
def callback_without_the_key_of_the_batch() -> set[Any]:
    batch = closed_batch()
    story = Story()
    Batch.objects.filter(pk=batch.pk).update(callback_type=story.job.job_type, callback_job_id=story.job.pk)
    return {batch.pk}


@corrupts("B3")
def one_callback_of_two_batches() -> set[Any]:
    first, second = closed_batch(), closed_batch()
    story = callback_of(first)
    Batch.objects.filter(pk=second.pk).update(callback_type=story.job.job_type, callback_job_id=story.job.pk)
    return {first.pk, second.pk}


@corrupts("B3")
def member_that_was_not_counted() -> set[Any]:
    batch = closed_batch()
    join(batch, done())
    return {batch.pk}


@corrupts("H1")
def link_behind_a_job_that_has_not_succeeded() -> set[Any]:
    return {chain_of(Story(), Story())[1].pk}


@corrupts("H1")
def link_that_a_success_forgot() -> set[Any]:
    return {chain_of(done(), None)[1].pk}


@corrupts("H1")
def link_behind_one_that_was_not_enqueued() -> set[Any]:
    links = chain_of(done(), Story(), None, Story())
    return {links[3].pk}


@corrupts("H1")
def first_link_that_is_not_enqueued() -> set[Any]:
    return {chain_of(None)[0].pk}


@corrupts("H1")
def chain_with_a_missing_link() -> set[Any]:
    links = chain_of(done(), Story(), None)
    ChainLink.objects.filter(pk=links[2].pk).delete()
    return {links[0].chain_id}


@corrupts("H1")
def links_of_no_chain() -> set[Any]:
    links = chain_of(Story(), None)
    Chain.objects.all().delete()
    return {link.pk for link in links}


@corrupts("H2")
def link_whose_job_is_gone() -> set[Any]:
    links = chain_of(Story())
    unguard(ChainLink)
    ChainLink.objects.filter(pk=links[0].pk).update(job_id=uuid7())
    return {links[0].pk, JobPayload.objects.get(chain_position=1).pk}


@corrupts("H2")
def job_that_says_another_place() -> set[Any]:
    links = chain_of(done(), Story())
    job_id = links[1].job_id
    JobPayload.objects.filter(pk=job_id).update(chain_position=3)
    return {links[1].pk, job_id}


@corrupts("H2")
def call_that_was_kept() -> set[Any]:
    links = chain_of(Story())
    unguard(ChainLink)
    ChainLink.objects.filter(pk=links[0].pk).update(call="{}")
    return {links[0].pk}


@corrupts("L3")
def batch_that_nobody_closes() -> set[Any]:
    batch = open_batch(created_at=clock.now() - timedelta(days=2))
    join(batch, Story(ago=timedelta(days=1)).claim().succeed())
    return {batch.pk}


@corrupts("L3")
def batch_without_members_that_nobody_closes() -> set[Any]:
    return {open_batch(created_at=clock.now() - timedelta(days=2)).pk}
