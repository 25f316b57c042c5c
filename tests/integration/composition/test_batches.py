"""Batches: members, the end of the last one, and what follows once."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_jobs import JobContext, batch, batch_result, faults
from django_jobs.exceptions import (
    BatchClosedError,
    BatchError,
    DefinitionError,
    DuplicateBatchError,
    IdempotencyConflictError,
    OutsideCompletionError,
    PayloadError,
    PermanentError,
    ResultGoneError,
)
from django_jobs.faults.kinds import KINDS
from django_jobs.models import Batch, Job
from django_jobs.operate.batch_runner import close_batches
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.discard import Discard
from django_jobs.operate.replay import Replay
from django_jobs.testing import JobsKit
from tests.factories_decisions import decided
from tests.integration.composition.conftest import Declare
from tests.scenes import Told


def made_of(batch_id: uuid.UUID) -> uuid.UUID:
    """Return the one member of a batch."""
    pk: uuid.UUID = Job.objects.get(batch_id=batch_id).pk
    return pk


def charge(order: int) -> None:
    """Do the work of a member."""
    if order < 0:
        raise PermanentError("no such order")


@pytest.fixture
def told() -> list[dict[str, Any]]:
    """What callbacks were given."""
    return []


@pytest.fixture
def work(declare: Declare) -> Any:
    """The members' job type."""
    return declare(charge, owner="billing")


@pytest.fixture
def notify(declare: Declare, told: list[dict[str, Any]]) -> Any:
    """The callback's job type."""

    def notify(order_id: int, batch_id: uuid.UUID | None = None, batch_counts: dict[str, int] | None = None) -> None:
        told.append({"order_id": order_id, "batch_id": batch_id, "counts": batch_counts})

    return declare(notify)


def test_callback_follows_the_last_member_once(
    jobs: JobsKit, work: Any, notify: Any, told: list[dict[str, Any]]
) -> None:
    """Members of a block run, the batch is closed after the last, and its callback knows the batch and the counts."""
    with batch(callback=notify.prepare(order_id=7)) as made:
        work.enqueue(1)
        made.add(work.prepare(2), work.prepare(order=3))

    assert (made.created, made.refresh().state, made.refresh().open) == (3, "open", 3)
    jobs.run_until_idle()

    found = batch_result(str(made.id))
    assert (found.state, found.succeeded, found.total) == ("closed", 3, 3)
    counts = {"succeeded": 3, "cancelled": 0, "resolved": 0, "dead": 0, "total": 3}
    assert told == [{"order_id": 7, "batch_id": made.id, "counts": counts}]
    callback = Job.objects.get(pk=found.callback_job_id)
    assert (callback.batch_id, callback.payload.key) == (None, f"batch:{made.id}")
    jobs.assert_invariants()


def test_batch_without_members_is_closed_at_once(jobs: JobsKit, notify: Any, told: list[dict[str, Any]]) -> None:
    """A block that enqueues nothing leaves a closed batch, whose callback is enqueued in the same transaction."""
    with transaction.atomic(), batch(callback=notify.prepare(1)) as made:
        pass

    assert made.refresh().is_closed
    jobs.run_until_idle()
    assert [one["counts"]["total"] for one in told] == [0]


def test_batch_of_ten_thousand_by_enqueue_many(jobs: JobsKit, work: Any) -> None:
    """A fan-out in one call makes members of all rows, by one statement per thousand."""
    with batch() as made:
        results = work.enqueue_many({"order": n} for n in range(10_000))

    assert len(results) == made.created == made.refresh().open == 10_000


def test_error_in_the_block_takes_all_of_it_back(jobs: JobsKit, work: Any) -> None:
    """Nothing of the batch stays, and a transaction of the caller goes on."""
    with transaction.atomic():
        Group.objects.create(name="before")
        made = batch()
        with suppress(ZeroDivisionError), made:
            work.enqueue(1)
            _ = 1 / 0
        Group.objects.create(name="after")

    assert (Batch.objects.count(), Job.objects.count(), Group.objects.count()) == (0, 0, 2)
    with pytest.raises(ResultGoneError):
        made.refresh()


def test_batch_commits_with_the_callers_transaction(jobs: JobsKit, work: Any) -> None:
    """A rollback of the caller takes batch and members with it."""
    with transaction.atomic():
        with batch():
            work.enqueue(1)
        transaction.set_rollback(True)

    assert (Batch.objects.count(), Job.objects.count()) == (0, 0)


def test_dead_member_keeps_the_batch_open_until_it_is_replayed(
    jobs: JobsKit, declare: Declare, notify: Any, told: list[dict[str, Any]]
) -> None:
    """With on_dead="block" the owner is told once, and the success after a replay closes the batch."""
    broken = [True]

    def fragile() -> None:
        if broken[0]:
            raise PermanentError("no")

    made = batch.enqueue([declare(fragile).prepare()], callback=notify.prepare(1), owner="ops")
    with Told() as heard:
        jobs.run_until_idle()
        close_batches(using="default")
        close_batches(using="default")

    assert (made.refresh().state, made.refresh().dead, told) == ("open", 1, [])
    assert [(one["owner"], one["reason"]) for one in heard.named("owner.alert") if one["job_id"] is None] == [
        ("ops", "batch waits for a dead letter")
    ]
    broken[0] = False
    decided(Replay(made_of(made.id), using="default"))
    jobs.run_until_idle()
    assert made.refresh().is_closed
    assert len(told) == 1
    jobs.assert_invariants()


def test_dead_member_ends_a_batch_that_goes_on(
    jobs: JobsKit, work: Any, notify: Any, told: list[dict[str, Any]]
) -> None:
    """With on_dead="continue" a dead letter counts as ended, and its replay later enqueues no second callback."""
    made = batch.enqueue([work.prepare(1), work.prepare(-1)], callback=notify.prepare(1), on_dead="continue")
    jobs.run_until_idle()

    assert (made.refresh().state, made.refresh().dead) == ("closed", 1)
    replay = Replay(Job.objects.get(batch_id=made.id, state="dead_lettered").pk, using="default")
    assert f"batch {made.id}, which is closed" in " ".join(replay.plan().lines)
    decided(replay)
    jobs.run_until_idle()
    close_batches(using="default")
    assert len(told) == 1
    jobs.assert_invariants()


@pytest.mark.parametrize("decision", ["cancel", "discard"])
def test_decision_about_the_last_member_closes_the_batch(
    jobs: JobsKit, work: Any, notify: Any, told: list[dict[str, Any]], decision: str
) -> None:
    """A member that is cancelled, or whose dead letter is discarded, has ended; closing follows the decision's commit."""
    made = batch.enqueue([work.prepare(-1)], callback=notify.prepare(1))
    if decision == "discard":
        jobs.run_until_idle()
    decided({"cancel": Cancel, "discard": Discard}[decision](made_of(made.id), using="default"))

    found = made.refresh()
    assert (found.state, found.cancelled, found.resolved) == (
        "closed",
        int(decision == "cancel"),
        int(decision != "cancel"),
    )
    jobs.run_until_idle()
    assert len(told) == 1
    jobs.assert_invariants()


def test_running_member_adds_members(jobs: JobsKit, declare: Declare, work: Any, notify: Any, told: list[Any]) -> None:
    """A member adds others in its completion, in a step or as an atomic handler, and the batch waits for them."""

    def split(context: JobContext) -> None:
        current = batch.current()
        assert current is not None
        with pytest.raises(OutsideCompletionError):
            current.add(work.prepare(9))
        context.step("more", lambda: len(current.add(work.prepare(1))))
        with context.complete():
            current.add(work.prepare(2))

    def plain() -> None:
        current = batch.current()
        assert current is not None
        current.add(work.prepare(3), work.prepare(4))

    made = batch.enqueue(
        [declare(split, takes_context=True).prepare(), declare(plain).prepare()], callback=notify.prepare(1)
    )
    jobs.run_until_idle()

    assert (made.refresh().succeeded, len(told)) == (6, 1)
    assert batch.current() is None


def test_member_that_was_replayed_after_the_end_adds_none(jobs: JobsKit, declare: Declare, work: Any) -> None:
    """A closed batch takes no members, so that what was counted stays true."""
    broken = [True]

    def late() -> None:
        if broken[0]:
            raise PermanentError("no")
        current = batch.current()
        assert current is not None
        with pytest.raises(BatchClosedError):
            current.add(work.prepare(1))

    made = batch.enqueue([declare(late).prepare()], on_dead="continue")
    jobs.run_until_idle()
    broken[0] = False
    decided(Replay(made_of(made.id), using="default"))
    jobs.run_until_idle()

    assert Job.objects.get(batch_id=made.id).state == "succeeded"
    assert made.refresh().total == 1


def test_key_answers_a_second_batch(jobs: JobsKit, work: Any) -> None:
    """One batch per key: a second one is a duplicate that stores nothing, whatever its members are."""
    first = batch.enqueue([work.prepare(1)], key="import:7")
    second = batch.enqueue([work.prepare(2)], key="import:7")

    assert (first.outcome, second.outcome, second.id) == ("created", "duplicate", first.id)
    with pytest.raises(DuplicateBatchError) as raised, batch(key="import:7"):
        work.enqueue(3)
    assert raised.value.batch_id == first.id
    assert Job.objects.count() == 1


def test_member_whose_key_is_held_is_told_as_a_duplicate(jobs: JobsKit, declare: Declare) -> None:
    """The batch does not wait for a job of somebody else, and says which those are; other arguments are an error."""

    def once(order: int, amount: int = 1) -> None:
        """Do nothing."""

    keyed = declare(once, key="once:{order}")
    other = keyed.enqueue(1)
    with batch() as made:
        keyed.enqueue(1)
    with pytest.raises(IdempotencyConflictError):
        batch.enqueue([keyed.prepare(1, amount=2)])

    assert (made.created, [one.id for one in made.duplicates], made.refresh().total) == (0, [other.id], 0)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"on_dead": "ignore"}, DefinitionError, "on_dead"),
        ({"callback": "notify"}, DefinitionError, "prepare"),
        ({"database": "elsewhere"}, DefinitionError, "elsewhere"),
        ({"key": ""}, PayloadError, "key"),
    ],
)
def test_batch_that_cannot_be_is_refused_before_any_statement(
    jobs: JobsKit, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    """A typed error names what is wrong."""
    with pytest.raises(error, match=text):
        batch(**options)


def test_calls_that_cannot_be_members_are_refused(jobs: JobsKit, work: Any) -> None:
    """Something else than a call, a link of a chain, and calls outside of the block."""
    with pytest.raises(PayloadError):
        work.prepare(1, 2, 3)
    with pytest.raises(DefinitionError, match="detached"):
        batch.enqueue([work.using(detached=True).prepare(1)])
    with pytest.raises(DefinitionError, match="pass_result"):
        batch.enqueue([work.prepare().using(pass_result="order")])
    with pytest.raises(DefinitionError, match="prepare"):
        batch.enqueue([1])  # type: ignore[list-item]
    with batch() as made:
        work.enqueue(1)
    with pytest.raises(BatchError):
        made.add(work.prepare(2))
    assert Job.objects.count() == 1


def test_kit_closes_what_a_crash_or_a_rolled_back_test_leaves(
    jobs: JobsKit, work: Any, notify: Any, told: list[dict[str, Any]]
) -> None:
    """A process that dies between the last commit and the closing: the kit does what every worker does then."""
    made = batch.enqueue([work.prepare(1)], callback=notify.prepare(1))
    with faults.armed("batch.before_close", KINDS["raise"]) as fired:
        jobs.run_until_idle()

    assert (fired(), made.refresh().state, len(told)) == (True, "closed", 1)
