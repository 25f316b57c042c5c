"""Serial keys: one job of a key at a time, in the order in which they became due, through retries and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import clock, store
from django_jobs.domain.lanes import ARRIVED, BEHIND
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import DeadReason, LossCause
from django_jobs.models import Job, SerialTurn
from django_jobs.store import turns
from django_jobs.store.resources import Lane
from django_jobs.store.turns import arrived, settle_turns, stale
from tests.databases import Server
from tests.factories import JobFactory
from tests.scenes import BUDGET, QUEUE, failure, held, loss, new_job, request

KEY = "account:1"
HOUR = timedelta(hours=1)


def enqueue(many: int = 1, *, key: str = KEY, **changes: Any) -> list[Any]:
    """Store jobs of a serial key; returns their ids in order."""
    news = [new_job(serial_key=key, **changes) for _ in range(many)]
    store.enqueue_many(news, using="default")
    return [new.job_id for new in news]


def settle() -> None:
    """Do what a worker does between two claims."""
    settle_turns([*arrived([QUEUE, "other"], using="default"), *stale(using="default")], using="default")


def claimed(room: int = 10, **changes: Any) -> list[store.Claimed]:
    """Settle, and claim what may run."""
    settle()
    return store.claim(request(room, **changes), using="default")


def finish(job: store.Claimed) -> None:
    """Let a job succeed, and pass its turn on as its worker does."""
    store.succeed(job, result=None, budget=BUDGET)
    settle_turns([job.serial_key], using="default")


def test_jobs_of_one_key_run_one_after_the_other_in_order(database: Server) -> None:
    """Three of a key and two of another: one of each at a time, first come first served."""
    ids, others = enqueue(3), enqueue(2, key="account:2")
    order, other_order = [], []
    while found := claimed():
        assert len({job.serial_key for job in found}) == len(found)
        for job in found:
            (order if job.serial_key == KEY else other_order).append(job.job_id)
            finish(job)
    assert (order, other_order) == (ids, others)
    assert not SerialTurn.objects.exists()


def test_nothing_with_a_key_is_claimed_before_its_turn_is_settled(database: Server) -> None:
    """An arrival is found by no claim, whatever its priority; jobs without a key are not affected."""
    enqueue(2, priority=100)
    JobFactory()
    assert [job.serial_key for job in store.claim(request(10), using="default")] == [""]
    assert set(Job.objects.exclude(serial_key="").values_list("lane", flat=True)) == {ARRIVED}
    settle()
    assert sorted(Job.objects.exclude(serial_key="").values_list("lane", flat=True)) == ["", BEHIND]


def test_r19_job_that_is_due_later_holds_nobody_back(database: Server) -> None:
    """R19: A due in an hour, B due now: B runs; then A, when it is due."""
    (later,) = enqueue(delay=HOUR)
    (now,) = enqueue()
    (job,) = claimed()
    assert job.job_id == now
    finish(job)
    assert claimed() == []
    with clock.override(lambda moment=clock.now() + 2 * HOUR: moment):
        store.promote([QUEUE], using="default")
        assert [job.job_id for job in claimed()] == [later]


def test_order_is_by_due_time_and_not_by_priority(database: Server) -> None:
    """Also across queues and types: what has been due for longest goes first."""
    now = clock.now()
    young = JobFactory(serial_key=KEY, lane=ARRIVED, priority=50, available_at=now - HOUR)
    old = JobFactory(serial_key=KEY, lane=ARRIVED, priority=-50, available_at=now - 2 * HOUR, queue_name="other")
    assert [job.job_id for job in claimed(queues=[QUEUE, "other"])] == [old.pk]
    assert Job.objects.get(pk=young.pk).lane == BEHIND


ENDS: dict[str, Callable[[store.Claimed], object]] = {
    "retry": lambda job: store.fail(job, failure=failure(unknown=1), delay=HOUR, budget=BUDGET),
    "retry at once": lambda job: store.fail(job, failure=failure(unknown=1), delay=timedelta(0), budget=BUDGET),
    "snooze": lambda job: store.snooze(job, delay=HOUR, counters=Counters(), message="later"),
    "release": lambda job: store.release(job, message="stopping"),
    "loss": lambda job: store.rescue(held(Job.objects.get(pk=job.job_id)), loss=loss(LossCause.EXIT)),
}


@pytest.mark.parametrize("end", ENDS)
def test_head_keeps_its_place_through_retries_and_losses(database: Server, end: str) -> None:
    """Whatever happens to an attempt, the job that has begun is the next of its key again."""
    first, second = enqueue(2)
    (job,) = claimed()
    ENDS[end](job)
    Job.objects.filter(pk=first).update(isolation="")  # a lost one would have to run alone
    soon = clock.now() + timedelta(minutes=1)
    with clock.override(lambda: soon):
        store.promote([QUEUE], using="default")
        again = claimed()
    assert [other.job_id for other in again] == ([first] if end not in {"retry", "snooze"} else [])
    with clock.override(lambda: soon + 2 * HOUR):
        store.promote([QUEUE], using="default")
        later = claimed()
    assert [other.job_id for other in [*again, *later]] == [first]
    assert Job.objects.get(pk=second).lane == BEHIND


@pytest.mark.parametrize("skips", [False, True])
def test_dead_head_blocks_or_is_skipped(database: Server, skips: bool) -> None:
    """A dead letter keeps its turn until somebody settles it, unless its type says that others go on."""
    first, second = enqueue(2, serial_skips=skips)
    (job,) = claimed()
    store.dead_letter(job, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET)
    assert [other.job_id for other in claimed()] == ([second] if skips else [])
    dead = Job.objects.get(pk=first)
    if not skips:
        store.discard(first, revision=dead.revision, using="default")
        assert [other.job_id for other in claimed()] == [second]


def test_replayed_head_goes_on_before_those_behind_it(database: Server) -> None:
    """Its turn was never anybody else's."""
    first, second = enqueue(2)
    (job,) = claimed()
    store.dead_letter(job, failure=failure(), reason=DeadReason.PERMANENT, budget=BUDGET)
    dead = Job.objects.get(pk=first)
    assert store.replay(
        first, revision=dead.revision, extra_attempts=0, run_after=None, useful_for=None, using="default"
    )
    (again,) = claimed()
    assert again.job_id == first
    finish(again)
    assert [other.job_id for other in claimed()] == [second]


def test_turn_that_a_dead_process_left_is_found(database: Server) -> None:
    """Between the end of a job and the turn of the next a process can die: the look of any worker passes it on."""
    _, second = enqueue(2)
    (job,) = claimed()
    store.succeed(job, result=None, budget=BUDGET)
    assert store.claim(request(10), using="default") == []
    assert stale(using="default") == [KEY]
    assert [other.job_id for other in claimed()] == [second]


def test_job_that_was_pruned_or_cancelled_leaves_its_turn(database: Server) -> None:
    """Whatever became of who had it, the next one gets it."""
    first, second, third = enqueue(3)
    settle()
    assert store.cancel(first, using="default")
    settle()
    assert Job.objects.get(pk=second).lane == ""
    Job.objects.filter(pk=second).delete()
    assert [other.job_id for other in claimed()] == [third]


def test_serial_jobs_of_a_resource_wait_for_both(database: Server, settings: Any) -> None:
    """With the turn a job stands in the lane of its resource, like any other that uses it."""
    settings.DJANGO_JOBS = {**getattr(settings, "DJANGO_JOBS", {}), "RESOURCES": {"api": {"limit": 1}}}
    enqueue(2, resource="api")
    enqueue(2, key="account:2", resource="api")
    lanes = [Lane(QUEUE, "api")]
    assert len(claimed(lanes=lanes)) == 1
    assert sorted(Job.objects.values_list("lane", flat=True)) == ["api", "api", BEHIND, BEHIND]


def test_second_look_changes_nothing(database: Server) -> None:
    """Settling is safe at any time: who has the turn keeps it."""
    enqueue(3)
    settle()
    before = list(Job.objects.order_by("id").values_list("lane", "revision"))
    settle_turns([KEY], using="default")
    settle()
    assert list(Job.objects.order_by("id").values_list("lane", "revision")) == before
    assert settle_turns([], using="default") == []


def test_head_that_becomes_ready_while_an_arrival_is_settled_keeps_its_place(
    database: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion between two statements of who settles: the job that has the turn never stands behind itself."""
    (first,) = enqueue()
    (job,) = claimed()
    store.fail(job, failure=failure(unknown=1), delay=timedelta(seconds=30), budget=BUDGET)
    real = turns.run

    def racing(name: str, *args: Any, **kwargs: Any) -> Any:
        found = real(name, *args, **kwargs)
        if name == "queries/give_turn":
            store.promote([QUEUE], using="default")  # as another worker does, committed just now
        return found

    with clock.override(lambda moment=clock.now() + HOUR: moment):
        (second,) = enqueue()
        monkeypatch.setattr(turns, "run", racing)
        settle()
        monkeypatch.undo()
        assert [other.job_id for other in claimed()] == [first]
        assert Job.objects.get(pk=second).lane == BEHIND


def test_head_that_stands_behind_all_the_same_is_found(database: Server) -> None:
    """Whatever brought the job with the turn there, the next look of maintenance gives it its place back."""
    (first,) = enqueue()
    settle()
    Job.objects.filter(pk=first).update(lane=BEHIND)
    assert stale(using="default") == [KEY]
    assert [other.job_id for other in claimed()] == [first]


def test_clock_that_steps_back_loses_nobody(database: Server) -> None:
    """Enqueued by the clock before, settled by one that is behind: found when the clock is there again."""
    now = clock.now()
    with clock.override(lambda: now + timedelta(seconds=1)):
        (first,) = enqueue()
    with clock.override(lambda: now):
        assert claimed() == []
    with clock.override(lambda: now + HOUR):
        assert [other.job_id for other in claimed()] == [first]


@pytest.mark.parametrize("expire_first", [True, False])
def test_job_that_is_useless_by_its_turn_holds_nobody(database: Server, expire_first: bool) -> None:
    """Whoever looks first, the one that ends it or the one that gives turns: the next one runs."""
    now = clock.now()
    with clock.override(lambda: now):
        enqueue()
        enqueue(useful_for=timedelta(seconds=5))
        (third,) = enqueue()
        (job,) = claimed()
    with clock.override(lambda: now + HOUR):
        if expire_first:
            store.expire(using="default")
        finish(job)
        store.expire(using="default")
        assert [other.job_id for other in claimed()] == [third]
