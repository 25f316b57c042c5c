"""A cancel and the end of an attempt at the same moment: exactly one wins, and the rows tell which."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_jobs import store
from django_jobs.domain.retry import Counters
from django_jobs.exceptions import ActionChangedError, ActionRefusedError, RowBusyError
from django_jobs.models import Attempt, CancelRequest, Job, OperatorAction
from django_jobs.operate.action import Done
from django_jobs.operate.cancel import Cancel
from django_jobs.operate.verify import verify
from django_jobs.store.cancels import heed_request
from django_jobs.store.completion import lock_for_completion
from tests.concurrency.test_completion_races import _wait_for_a_waiter
from tests.crowd import meanwhile, together
from tests.databases import Server
from tests.factories import JobFactory
from tests.factories_decisions import operator
from tests.scenes import BUDGET, failure, held, loss, request

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 12
HOUR = timedelta(hours=1)
ENDINGS: dict[str, Callable[[store.Held], object]] = {
    "fail": lambda proof: store.fail(proof, failure=failure(unknown=1), delay=timedelta(0), budget=BUDGET),
    "snooze": lambda proof: store.snooze(proof, delay=HOUR, counters=Counters(), message="later"),
    "release": lambda proof: store.release(proof, message="stopping"),
    "rescue": lambda proof: store.rescue(proof, loss=loss()),
}


def _cancel(job: Job) -> Callable[[], Done]:
    decision = Cancel(job.pk, using="default")
    digest = decision.plan().digest
    return lambda: decision.submit(operator(), digest=digest)


def test_cancel_and_success_at_one_moment(server: Server) -> None:
    """A success always stands; the cancel is either refused, or leaves a request that is told as too late."""
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        job = JobFactory(running=True)
        proof = held(job)

        def complete(proof: store.Held = proof) -> None:
            with transaction.atomic():
                lock_for_completion(proof, idle=timedelta(seconds=15))
                store.succeed(proof, result=None, budget=BUDGET)

        results = together(_cancel(job), complete)
        job.refresh_from_db()
        asked = CancelRequest.objects.filter(job_id=job.pk).exists()
        assert (results[1], job.state) == (None, "succeeded")
        assert isinstance(results[0], Done) is asked is OperatorAction.objects.filter(job_id=job.pk).exists()
        assert asked or isinstance(results[0], ActionRefusedError)
        seen["asked" if asked else "refused"] += 1

    assert sum(seen.values()) == ROUNDS


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_request_is_lost_at_any_end(server: Server, ending: str) -> None:
    """Whoever is first: a recorded request always ends the job; a refused cancel leaves it waiting, and no request."""
    for _ in range(ROUNDS):
        job = JobFactory(running=True)
        proof = held(job)

        results = together(_cancel(job), lambda proof=proof: ENDINGS[ending](proof))
        if results[1] is False:  # release and rescue step over a row that the decision holds; they are tried again
            assert ENDINGS[ending](proof) is not False

        job.refresh_from_db()
        asked = CancelRequest.objects.filter(job_id=job.pk).exists()
        assert isinstance(results[0], Done) is asked
        assert asked or isinstance(results[0], ActionChangedError)
        assert job.state == "cancelled" if asked else job.state in {"queued", "scheduled"}
        assert Attempt.objects.get(job_id=job.pk).outcome is not None
    assert {item.invariant.name for item in verify(using="default").violated} & {"J1", "J15", "J16"} == set()


@pytest.mark.parametrize("ending", ["fail", "snooze"])
def test_ending_that_waited_for_the_decision_sees_the_request(server: Server, ending: str, database_url: str) -> None:
    """The statement that ends the attempt began before the request was there, and still the job is cancelled."""
    job = JobFactory(running=True)
    proof = held(job)

    def ask(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            _cancel(job)()
            pause()

    with meanwhile(ask) as finish:
        results = together(lambda: ENDINGS[ending](proof), lambda: (_wait_for_a_waiter(database_url), finish()))

    assert not isinstance(results[0], Exception)
    job.refresh_from_db()
    assert job.state == "cancelled"


def test_request_is_heeded_under_a_stricter_level(server: Server, database_url: str) -> None:
    """The row changed while the look for requests waited for it: the database undoes the look, and it is repeated."""
    job = JobFactory(failed=True)
    CancelRequest.objects.create(job_id=job.pk, generation=1, action_id=uuid.uuid4(), created_at=job.created_at)

    def change(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            Job.objects.filter(pk=job.pk).update(revision=99)
            pause()

    def heed() -> object:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return heed_request(job.pk, using="default")

    with meanwhile(change) as finish:
        results = together(heed, lambda: (_wait_for_a_waiter(database_url), finish()))

    assert results[0] == "cancelled"


def test_cancel_and_claim_at_one_moment(server: Server) -> None:
    """A waiting job is either cancelled and never starts, or it started and the cancel says that it changed."""
    for _ in range(ROUNDS):
        job = JobFactory()
        results = together(_cancel(job), lambda: store.claim(request(), using="default"))

        job.refresh_from_db()
        if isinstance(results[0], Done):
            assert (job.state, results[1]) == ("cancelled", [])
        else:
            assert isinstance(results[0], ActionChangedError)
            assert job.state == "running"
            store.succeed(held(job), result=None, budget=BUDGET)


def test_decision_waits_a_second_for_a_completing_job(server: Server) -> None:
    """Nothing an operator does waits longer for a row that a worker is committing, and nothing is written."""
    job = JobFactory(running=True)
    proof = held(job)
    decide = _cancel(job)

    def complete(pause: Callable[[], None]) -> None:
        with transaction.atomic():
            lock_for_completion(proof, idle=timedelta(seconds=15))
            pause()
            store.succeed(proof, result=None, budget=BUDGET)

    with meanwhile(complete), pytest.raises(RowBusyError):
        decide()

    assert not CancelRequest.objects.exists()
    assert not OperatorAction.objects.exists()
