"""Claiming: what is leased, in which order, by whom, and for how long."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_jobs import clock, store
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import Alone
from django_jobs.models import Attempt, Job
from django_jobs.store.times import read_now
from tests.databases import Server
from tests.factories import JOB_TYPE, JobFactory
from tests.scenes import BUDGET, NOON, failure, held, known, request


def _claim(room: int = 1, **changes: Any) -> list[uuid.UUID]:
    return [job.job_id for job in store.claim(request(room, **changes), using="default")]


def test_bigger_priority_then_earlier_time_then_id_comes_first(database: Server) -> None:
    """The order is the same across queues: priority downwards, then due time, then id."""
    now = clock.now()
    late = JobFactory(available_at=now - timedelta(seconds=1))
    early = JobFactory(available_at=now - timedelta(seconds=9), queue_name="mail")
    twin = JobFactory(available_at=now - timedelta(seconds=1))
    low = JobFactory(priority=-1, available_at=now - timedelta(days=1))
    high = JobFactory(priority=5, queue_name="mail")

    order = _claim(5, queues=["mail", "default"])

    assert order == [high.pk, early.pk, late.pk, twin.pk, low.pk]


def test_order_holds_claim_by_claim(database: Server) -> None:
    """A worker with room for one gets the first of all, however many stand behind it in its queue."""
    now = clock.now()
    old = JobFactory(available_at=now - timedelta(hours=1))
    low = JobFactory(available_at=now - timedelta(hours=2), priority=-1)
    high = JobFactory(available_at=now, priority=1)
    younger = JobFactory(available_at=now - timedelta(minutes=1))

    assert [_claim(1) for _ in range(5)] == [[high.pk], [old.pk], [younger.pk], [low.pk], []]


def test_limit_holds_across_queues(database: Server) -> None:
    """No more is claimed than there are attempt ids, and what is left stays queued."""
    for number in range(6):
        JobFactory(queue_name=f"q{number % 3}")

    assert len(_claim(2, queues=["q0", "q1", "q2"])) == 2
    assert Job.objects.filter(state="queued").count() == 4
    assert Attempt.objects.count() == 2


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"queue_name": "mail"}, id="other queue"),
        pytest.param({"job_type": "tests.other"}, id="unknown type"),
        pytest.param({"payload_version": 2}, id="unknown version"),
        pytest.param({"available_at": datetime(2999, 1, 1, tzinfo=UTC)}, id="not due"),
        pytest.param({"useful_until": datetime(2020, 1, 1, tzinfo=UTC)}, id="useless"),
        pytest.param({"suspect": True}, id="must run alone"),
        pytest.param({"lane": "payments-api"}, id="a lane that nobody opened"),
    ],
)
def test_what_cannot_run_here_is_left_alone(database: Server, values: dict[str, Any]) -> None:
    """A job of another queue, type, version or time stays exactly as it is, and does not hide the one behind it."""
    other = JobFactory(priority=100, **values)
    mine = JobFactory()
    before = Job.objects.filter(pk=other.pk).values().get()

    assert _claim(5) == [mine.pk]
    assert Job.objects.filter(pk=other.pk).values().get() == before


@pytest.mark.parametrize("missing", ["attempt_ids", "types", "queues"])
def test_claim_without_room_asks_nothing(database: Server, missing: str) -> None:
    """Nothing can be claimed without room, types or queues, so no query is made."""
    JobFactory()
    with CaptureQueriesContext(connection) as queries:
        assert _claim(1, **{missing: []}) == []
    assert len(queries) == 0


def test_due_and_useful_are_judged_to_the_millisecond(database: Server) -> None:
    """A job is due at its time, not before it, and useless at the end of its usefulness, not after it."""
    moment = timedelta(milliseconds=1)
    with clock.override(lambda: NOON):
        JobFactory(available_at=NOON + moment)
        JobFactory(available_at=NOON - moment, useful_until=NOON)
        due = JobFactory(available_at=NOON)
        useful = JobFactory(available_at=NOON, useful_until=NOON + moment)

        assert _claim(4) == [due.pk, useful.pk]


def test_suspects_are_claimed_only_when_asked_for(database: Server) -> None:
    """A claim for a suspect takes the oldest one that must run alone and nothing else, and writes the company it had."""
    JobFactory(priority=100)
    younger = JobFactory(suspect=True, priority=50)
    older = JobFactory(suspect=True, available_at=clock.now() - timedelta(hours=1))

    found = store.claim(request(1, suspects=True, alone=Alone.WORKER), using="default")

    assert [job.job_id for job in found] == [older.pk]
    assert (found[0].isolation, found[0].alone) == ("child", Alone.WORKER)
    assert Attempt.objects.get().alone == "worker"
    assert Job.objects.get(pk=younger.pk).state == "queued"


def test_useless_suspect_is_not_claimed(database: Server) -> None:
    """Nor is one of an unknown type: the same conditions hold as for other jobs."""
    JobFactory(suspect=True, useful_until=clock.now() - timedelta(seconds=1))
    JobFactory(suspect=True, job_type="tests.other")

    assert _claim(2, suspects=True) == []


def test_claim_hands_over_all_that_an_attempt_needs(database: Server) -> None:
    """The reply has the payload, the counters and the texts of the job, each in its own Python type."""
    text = str(uuid.uuid4())
    job = JobFactory(
        correlation_id=text,
        subject="order:1",
        tenant="acme",
        owner="shop",
        traceparent="00-1-2-03",
        unknown_count=1,
        transient_count=2,
        lost_count=3,
        exit_lost_count=2,
        silent_lost_count=1,
        free_count=4,
        unchanged_count=5,
        useful_until=clock.now() + timedelta(hours=1),
        waiting_since=clock.now() - timedelta(hours=1),
        payload__arguments='{"a":1}',
        payload__key="order:1",
    )
    job.refresh_from_db()

    (found,) = store.claim(request(1), using="default")

    assert (found.job_id, found.number, found.generation) == (job.pk, 1, 1)
    assert (found.arguments, found.key) == ('{"a":1}', "order:1")
    assert (found.correlation_id, found.subject, found.tenant, found.owner) == (text, "order:1", "acme", "shop")
    assert found.traceparent == "00-1-2-03"
    assert (found.useful_until, found.waiting_since) == (job.useful_until, job.waiting_since)
    assert found.generation_started_at == job.generation_started_at
    assert found.counters == Counters(unknown=1, transient=2, lost=3, exit_lost=2, silent_lost=1, free=4, unchanged=5)


def test_job_without_payload_row_is_still_handed_over(database: Server) -> None:
    """Its attempt must be able to say what is missing; a job that nobody can claim would wait for ever."""
    job = JobFactory()
    job.payload.delete()

    (found,) = store.claim(request(1), using="default")

    assert (found.job_id, found.arguments, found.key) == (job.pk, None, "")


def test_attempt_opens_in_the_statement_of_the_claim(database: Server) -> None:
    """On PostgreSQL a claim is one statement: there is no moment with a lease and without an attempt."""
    JobFactory()
    with CaptureQueriesContext(connection) as queries:
        (found,) = store.claim(request(1), using="default")

    attempt = Attempt.objects.get()
    assert (attempt.pk, attempt.number, attempt.outcome) == (found.attempt_id, 1, None)
    assert attempt.started_at == found.claimed_at
    assert attempt.lease_seconds == found.lease.total_seconds()
    if connection.vendor == "postgresql":
        assert len(queries) == 1


def test_refused_attempt_row_leaves_the_job_unclaimed(database: Server) -> None:
    """If the attempt's row cannot be written, the job is not leased either."""
    JobFactory()
    taken = JobFactory(succeeded=True).attempts.get().pk
    with pytest.raises(Exception, match=r"(?i)unique"), transaction.atomic():
        store.claim(request(1, attempt_ids=[taken]), using="default")

    assert Job.objects.filter(state="queued").count() == 1


def test_lease_is_the_type_s_own_on_the_clock_of_the_database(database: Server) -> None:
    """A worker whose clock is a day ahead leases no longer than one whose clock is right."""
    job = JobFactory(job_type="tests.long", available_at=clock.now() - timedelta(days=2))
    types = [known(), known("tests.long", lease=timedelta(seconds=100))]
    if connection.vendor == "postgresql":
        with time_machine.travel(timedelta(days=1)):
            (found,) = store.claim(request(1, types=types), using="default")
    else:  # one machine: its clock is the database's
        (found,) = store.claim(request(1, types=types), using="default")

    job.refresh_from_db()
    assert job.lease_expires_at == found.lease_expires_at
    assert found.lease_expires_at - found.claimed_at == timedelta(seconds=100)
    assert abs(read_now("default") - found.claimed_at) < timedelta(seconds=30)


def test_fence_rises_through_attempts_and_generations(database: Server) -> None:
    """Attempts are numbered 1, 2, 3 … over the whole life of a job; a new generation does not start again."""
    job = JobFactory()
    numbers = []
    for generation in (1, 1, 2):
        Job.objects.filter(pk=job.pk).update(generation=generation)
        (found,) = store.claim(request(1), using="default")
        numbers.append((found.number, found.generation))
        store.fail(found, failure=failure(), delay=timedelta(0), budget=BUDGET)

    assert numbers == [(1, 1), (2, 1), (3, 2)]
    assert list(job.attempts.order_by("number").values_list("number", flat=True)) == [1, 2, 3]


def test_claim_clears_the_progress_of_the_attempt_before(database: Server) -> None:
    """Growth is measured inside an attempt: what an earlier one reported must not stand in its way."""
    job = JobFactory(progress=99, progress_total=100)

    store.claim(request(1), using="default")

    job.refresh_from_db()
    assert (job.progress, job.progress_total) == (None, None)


def test_older_name_of_a_type_is_claimed_with_its_own_lease(database: Server) -> None:
    """Each stored name and version brings the lease and code version of its own definition."""
    JobFactory(payload_version=2)
    types = [known(JOB_TYPE, 1, timedelta(seconds=10)), known(JOB_TYPE, 2, timedelta(seconds=20))]

    (found,) = store.claim(request(1, types=types), using="default")

    assert found.lease == timedelta(seconds=20)
    assert Job.objects.get().code_version == "test"


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "values", [{"job_type": "tests.other"}, {"suspect": True}, {"queue_name": "mail"}, {"scheduled": True}]
)
def test_worker_with_nothing_to_start_takes_no_write_lock(database: Server, values: dict[str, Any]) -> None:
    """On SQLite an idle worker only reads: a job that it cannot run does not make it lock the database each second."""
    JobFactory(**values)
    with CaptureQueriesContext(connection) as queries:
        assert _claim(1) == []

    assert [query["sql"][:6] for query in queries] == ["SELECT"]


def test_lost_reply_to_a_claim_can_be_asked_for(database: Server) -> None:
    """The claimer made the ids, so it finds out which of them hold a job, and gives that job back."""
    from django_jobs.store.completion import given

    job = JobFactory()
    asked = request(3)
    store.claim(asked, using="default")

    found = given(asked.attempt_ids, using="default")

    assert [(item.job_id, item.number) for item in found] == [(job.pk, 1)]
    assert store.release(found[0], message="The reply was lost.") is True
    assert given(asked.attempt_ids, using="default") == []
    job.refresh_from_db()
    assert (job.state, job.free_count) == ("queued", 1)


def test_released_job_is_claimed_again_under_another_attempt(database: Server) -> None:
    """The former attempt's id proves nothing any more."""
    JobFactory()
    (first,) = store.claim(request(1), using="default")
    store.release(first, message="stopping")
    (second,) = store.claim(request(1), using="default")

    assert second.number == 2
    with pytest.raises(store.leases.LeaseLostError):
        store.succeed(first, result=None, budget=BUDGET)
    assert held(Job.objects.get()).attempt_id == second.attempt_id
