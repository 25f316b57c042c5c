"""A replayed job as a real worker runs it: nothing that was confirmed is sent again, and its grants hold."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Confirmed, JobContext, RetryPolicy, effect
from django_jobs.exceptions import PermanentError
from django_jobs.models import Attempt, Job, Send
from django_jobs.operate.replay import Replay
from django_jobs.operate.verify import verify
from django_jobs.worker import chores
from django_jobs.worker.chores import Chore, Chores
from tests.factories_decisions import decided
from tests.integration.worker.conftest import Declare, run_one, the_job

pytestmark = pytest.mark.django_db(transaction=True)

SENT: list[str] = []
AT_ONCE = RetryPolicy(base=timedelta(microseconds=1), cap=timedelta(microseconds=1), unknown_attempts=2, unchanged=2)


@effect("tests.replayed", dedupe="key", key_lifetime=timedelta(hours=1), timeout=timedelta(seconds=1))
def charge(call: Any) -> Confirmed:
    """Confirm everything, and remember the key."""
    SENT.append(call.key)
    return Confirmed("ch_1")


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def test_confirmed_effect_is_never_sent_again(declare: Declare) -> None:
    """The handler died after the charge; its replay gets the receipt, and the provider hears nothing."""
    broken, receipts = [True], []

    def handler(context: JobContext) -> None:
        receipts.append(context.effect("charge", charge, key="order:7").provider_ref)
        if broken:
            raise PermanentError("a bug behind the charge")

    declare(handler, takes_context=True).enqueue()
    assert run_one().outcome == "failed"
    assert (the_job().state, len(SENT)) == ("dead_lettered", 1)

    decided(Replay(the_job().pk, using="default"))
    broken.clear()
    attempt = run_one()

    assert (attempt.outcome, attempt.number, attempt.generation) == ("succeeded", 2, 2)
    assert the_job().state == "succeeded"
    assert receipts == ["ch_1", "ch_1"]
    assert len(SENT) == Send.objects.count() == 1
    assert verify(using="default").violated == ()


@pytest.mark.parametrize("extra", [0, 2])
def test_extra_attempts_add_to_the_limits_of_unknown_errors(declare: Declare, extra: int) -> None:
    """A replayed generation fails so often more before it dies again, also with the same error each time."""

    def handler() -> None:
        raise ValueError("the same")

    declare(handler, retry=AT_ONCE).enqueue()
    while the_job().state != "dead_lettered":
        run_one()
    assert Attempt.objects.count() == 2

    decided(Replay(the_job().pk, using="default", extra_attempts=extra))
    while the_job().state != "dead_lettered":
        run_one()

    assert Attempt.objects.filter(generation=2).count() == 2 + extra
    assert verify(using="default").violated == ()


def test_grant_ends_with_its_generation(declare: Declare) -> None:
    """A second replay without extra attempts has the policy's own limit again."""

    def handler() -> None:
        raise PermanentError("no")

    declare(handler).enqueue()
    run_one()
    decided(Replay(the_job().pk, using="default", extra_attempts=5))
    run_one()
    decided(Replay(the_job().pk, using="default"))

    assert Job.objects.get().extra_attempts == 0


@pytest.fixture
def register() -> Iterator[Callable[[Chore], None]]:
    """Register a chore for one test."""
    before = dict(chores._chores)
    yield chores.register
    chores._chores.clear()
    chores._chores.update(before)


def test_chore_runs_in_a_thread_of_its_own_until_nothing_is_left(register: Callable[[Chore], None]) -> None:
    """It is started when it is due, goes on while it has something to do, and then its thread ends."""
    turns: list[uuid.UUID] = []
    me = uuid.uuid4()

    def work(worker_id: uuid.UUID, using: str) -> float | None:
        turns.append(worker_id)
        return 0.0 if len(turns) < 3 else None

    register(Chore(name="tests", is_due=lambda using: not turns, turn=work))
    mine = Chores(me, using="default")

    assert mine.look()
    assert mine.join(seconds=30)
    assert mine.look()

    assert turns == [me] * 3


def test_chore_that_fails_is_started_again_and_stops_when_told(register: Callable[[Chore], None]) -> None:
    """Its error is noted, nothing else ends by it; after a stop nothing is started."""
    turns: list[int] = []

    def work(worker_id: uuid.UUID, using: str) -> float | None:
        turns.append(1)
        raise ValueError("broken")

    register(Chore(name="tests", is_due=lambda using: True, turn=work))
    mine = Chores(uuid.uuid4(), using="default")
    for _ in range(2):
        mine.look()
        assert mine.join(seconds=30)
    mine.stop()
    mine.look()

    assert len(turns) == 2
