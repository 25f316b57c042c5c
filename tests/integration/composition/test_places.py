"""Where batches and chains are made: async code, handlers, detached jobs."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_jobs import JobContext, batch, chain
from django_jobs.exceptions import OutsideCompletionError
from django_jobs.models import Batch, Chain, Job
from django_jobs.testing import JobsKit
from tests.integration.composition.conftest import Declare


def work(n: int) -> None:
    """Do nothing."""


def test_async_code_makes_and_reads_both(jobs: JobsKit, declare: Declare) -> None:
    """The async forms do what the others do."""
    job = declare(work)

    async def make() -> list[Any]:
        made = await batch.aenqueue([job.prepare(1)])
        chained = await chain(job.prepare(2)).aenqueue()
        return [await made.arefresh(), await chained.arefresh()]

    found = async_to_sync(make)()

    assert [one.state for one in found] == ["open", "running"]


def test_handler_makes_both_where_it_commits(jobs: JobsKit, declare: Declare) -> None:
    """In a completion they commit with the success and go on in the job's story; elsewhere they are refused."""
    job = declare(work)

    def makes(context: JobContext) -> None:
        for refused in (lambda: batch.enqueue([job.prepare(1)]), chain(job.prepare(1)).enqueue):
            with pytest.raises(OutsideCompletionError):
                refused()
        with context.complete():
            batch.enqueue([job.prepare(1)], callback=job.prepare(2))
            chain(job.prepare(3), job.prepare(4)).enqueue()

    maker = declare(makes, takes_context=True).enqueue()
    jobs.run_until_idle()

    assert Job.objects.filter(state="succeeded").count() == 5
    of_maker = Job.objects.exclude(pk=maker.id).filter(correlation_id=str(maker.id))
    assert of_maker.count() == 3  # a callback begins a story of its own, which is the batch's
    assert (Batch.objects.get().succeeded, Chain.objects.count()) == (1, 1)
    jobs.assert_invariants()


def test_detached_job_is_nobodys_member(jobs: JobsKit, declare: Declare) -> None:
    """It may be there without the batch, so the batch does not wait for it."""
    job = declare(work)
    with batch() as made:
        job.using(detached=True).enqueue(1)
        job.enqueue(2)

    assert (made.created, made.refresh().total, Job.objects.count()) == (1, 1, 2)


def test_batch_in_a_batch_takes_its_own_members(jobs: JobsKit, declare: Declare) -> None:
    """The inner block has its own; behind it the outer one goes on."""
    job = declare(work)
    with batch() as outer:
        job.enqueue(1)
        with batch() as inner:
            job.enqueue(2)
        job.enqueue(3)

    assert (outer.refresh().total, inner.refresh().total) == (2, 1)


def test_follow_up_of_a_member_is_no_member_by_itself(jobs: JobsKit, declare: Declare) -> None:
    """What a member enqueues is its own affair, unless it is added."""
    job = declare(work)

    def more() -> None:
        job.enqueue(1)

    made = batch.enqueue([declare(more).prepare()])
    jobs.run_until_idle()

    assert (made.refresh().total, Job.objects.count()) == (1, 2)


def test_block_of_a_test_case_counts_as_none(jobs: JobsKit, declare: Declare) -> None:
    """Inside a transaction of the caller the members wait for its commit, like every job."""
    job = declare(work)
    with transaction.atomic():
        made = batch.enqueue([job.prepare(1)])
        assert made.state == "open"
    jobs.run_until_idle()

    assert made.refresh().is_closed
