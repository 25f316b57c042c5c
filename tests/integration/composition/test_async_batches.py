"""``async with batch(...)``: members are collected while the block waits for other things, and stored at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection

from django_jobs import EnqueueResult, JobContext, batch
from django_jobs.exceptions import (
    BatchError,
    DefinitionError,
    DuplicateBatchError,
    IdempotencyConflictError,
    OutsideCompletionError,
    PermanentError,
)
from django_jobs.models import Batch, Job
from django_jobs.testing import JobsKit
from tests.integration.composition.conftest import Declare

Done = Coroutine[Any, Any, Any]


def work(n: int) -> None:
    """Do nothing."""


def done(coroutine: Callable[..., Done], *arguments: Any) -> Any:
    """Run a coroutine as a view under ASGI does: what it asks of the database happens on the caller's thread."""
    return async_to_sync(coroutine)(*arguments)


@pytest.fixture
def job(declare: Declare) -> Any:
    """The members' type."""
    return declare(work)


def counts() -> tuple[int, int]:
    """Return how many batches and jobs there are."""
    return Batch.objects.count(), Job.objects.count()


def test_members_are_stored_at_the_end_of_the_block(jobs: JobsKit, job: Any) -> None:
    """The batch, its members and what follows it are there after the block, and none of them before."""
    before = []

    async def make() -> Any:
        async with batch(callback=job.prepare(9)) as made:
            assert made.add(job.prepare(1), job.prepare(2)) == []
            await asyncio.gather(*(asyncio.to_thread(made.add, job.prepare(n)) for n in range(3, 6)))
            before.append(await sync_to_async(counts)())
        return made

    made = done(make)
    jobs.run_until_idle()

    assert before == [(0, 0)]
    assert (made.created, made.duplicates) == (5, [])
    found = made.refresh()
    assert (found.state, found.succeeded) == ("closed", 5)
    assert Job.objects.filter(pk=found.callback_job_id, state="succeeded").exists()
    jobs.assert_invariants()


def test_other_coroutines_are_in_no_transaction_of_the_block(jobs: JobsKit, job: Any) -> None:
    """While the block waits, nothing is open on the thread that it shares with others, so an error takes nothing along."""
    seen = []

    async def other() -> None:
        await sync_to_async(Group.objects.create)(name="other")
        seen.append(await sync_to_async(lambda: connection.in_atomic_block)())

    async def make() -> None:
        async with batch() as made:
            made.add(job.prepare(1))
            await asyncio.create_task(other())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        done(make)

    assert seen == [False]
    assert (counts(), Group.objects.count()) == ((0, 0), 1)


def test_block_without_members_is_closed_at_once(jobs: JobsKit, job: Any) -> None:
    """What follows is enqueued as after a plain block."""

    async def make() -> Any:
        async with batch(callback=job.prepare(1)) as made:
            pass
        return await made.arefresh()

    found = done(make)
    assert (found.is_closed, found.total, Job.objects.get().pk) == (True, 0, found.callback_job_id)


@pytest.mark.parametrize("enqueue", ["enqueue", "aenqueue"])
def test_what_is_enqueued_inside_by_other_means_is_refused(jobs: JobsKit, job: Any, enqueue: str) -> None:
    """It could be no member, so it is said how to add one; a detached job is nobody's member and is stored."""

    async def make() -> Any:
        async with batch() as made:
            await sync_to_async(job.using(detached=True).enqueue)(0)
            with pytest.raises(BatchError, match=r"added by b\.add"):
                await (job.aenqueue(1) if enqueue == "aenqueue" else sync_to_async(job.enqueue)(1))
            made.add(job.prepare(2))
        await job.aenqueue(3)
        return made

    assert done(make).refresh().total == 1
    assert Job.objects.count() == 3


def test_whole_batch_inside_the_block_is_one_of_its_own(jobs: JobsKit, job: Any) -> None:
    """A batch that is stored inside takes its own members, whatever block is around it."""

    async def make() -> Any:
        async with batch() as outer:
            inner = await batch.aenqueue([job.prepare(1), job.prepare(2)])
            outer.add(job.prepare(3))
        return outer.refresh, inner.refresh

    outer, inner = done(make)
    assert (outer().total, inner().total) == (1, 2)


def test_errors_come_where_they_can_be_known(jobs: JobsKit, job: Any) -> None:
    """A call that can be no member is refused by add(), a key that is taken at the end of the block: nothing is stored."""
    keyed = job.using(key="order:7")
    keyed.enqueue(1)
    batch.enqueue([], key="import:7")
    before = counts()

    async def make(key: str, call: Any) -> None:
        async with batch(key=key) as made:
            with pytest.raises(DefinitionError, match="is detached"):
                made.add(job.using(detached=True).prepare(1))
            made.add(call)

    with pytest.raises(DuplicateBatchError):
        done(make, "import:7", job.prepare(1))
    with pytest.raises(IdempotencyConflictError):
        done(make, "import:8", keyed.prepare(2))
    assert counts() == before


def test_batch_is_made_by_one_block(jobs: JobsKit, job: Any) -> None:
    """Neither within its block nor after it can it be begun again, and after it nothing is added."""

    async def make() -> None:
        async with batch() as made:
            with pytest.raises(BatchError, match="one block"):
                await made.__aenter__()
            made.add(job.prepare(1))
        with pytest.raises(BatchError, match="one block"):
            await made.__aenter__()
        with pytest.raises(BatchError, match="inside the with block"):
            made.add(job.prepare(2))

    done(make)
    assert counts() == (1, 1)


def test_coroutine_handler_makes_a_batch_with_its_success(jobs: JobsKit, job: Any, declare: Declare) -> None:
    """In a plain coroutine, whose rows commit with its success, the batch does too; a failed one leaves none."""

    async def makes(fails: bool) -> None:
        async with batch() as made:
            made.add(job.prepare(1))
        if fails:
            raise PermanentError("no")

    maker = declare(makes)
    maker.enqueue(fails=False)
    maker.enqueue(fails=True)
    jobs.run_until_idle()

    assert (Batch.objects.count(), Job.objects.filter(batch_id__isnull=False).count()) == (1, 1)
    jobs.assert_invariants()


def test_coroutine_with_a_context_makes_a_batch_in_its_completion(jobs: JobsKit, job: Any, declare: Declare) -> None:
    """Elsewhere in it the end of the block is refused, because a crash would repeat it."""

    async def makes(context: JobContext) -> None:
        with pytest.raises(OutsideCompletionError):
            async with batch() as refused:
                refused.add(job.prepare(1))
        async with context.acomplete(), batch() as made:
            made.add(job.prepare(2))

    declare(makes, takes_context=True).enqueue()
    jobs.run_until_idle()

    assert (Batch.objects.count(), Job.objects.filter(batch_id__isnull=False, state="succeeded").count()) == (1, 1)
    jobs.assert_invariants()


@pytest.mark.django_db(transaction=True)
def test_task_that_outlives_the_block_enqueues_as_ever(job: Any) -> None:
    """A task that was started inside is no part of the block any more when that has ended."""

    async def main() -> EnqueueResult:
        over = asyncio.Event()

        async def later() -> EnqueueResult:
            await over.wait()
            return await job.aenqueue(2)

        async with batch() as made:
            task = asyncio.create_task(later())
            made.add(job.prepare(1))
        over.set()
        return await task

    assert asyncio.run(main()).created
    assert Job.objects.filter(batch_id__isnull=True).count() == 1
