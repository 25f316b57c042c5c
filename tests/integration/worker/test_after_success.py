"""After a success: its key, its message and its old worker come again, and nothing runs a second time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import clock, receive
from django_jobs.exceptions import LeaseLostError
from django_jobs.models import Attempt, IdempotencyKey, InboxMessage, Job, JobPayload
from django_jobs.operate.prune import prune
from django_jobs.operate.verify import verify
from django_jobs.store import succeed
from tests.integration.worker.conftest import Declare, claimer, run, take, write

pytestmark = pytest.mark.django_db(transaction=True)

TTL = timedelta(days=10)
MOMENT = timedelta(milliseconds=1)


def check_invariants() -> None:
    """Nothing stored contradicts itself."""
    assert {item.invariant.name: item.ids for item in verify(using="default").violated} == {}


@pytest.mark.parametrize("pruned", [False, True], ids=["", "pruned"])
def test_f25_f33_key_at_the_border_of_its_life(declare: Declare, table: object, pruned: bool) -> None:
    """F25, F33: 1 ms before it ends a key answers with the job and its result; from its end on a new job is stored."""

    def handler(n: int) -> dict[str, int]:
        write(n)
        return {"row": n}

    keyed = declare(handler, key="order:{n}", key_ttl=TTL)
    first = keyed.enqueue(n=7)
    run(take())
    ended = Job.objects.get().finished_at
    assert ended is not None

    def at(moment: timedelta) -> str:
        with clock.override(lambda: ended + moment):
            if pruned:
                prune(using="default")
            found = keyed.enqueue(n=7)
            expected = "succeeded" if moment < TTL else "queued"
            assert found.state == expected
            assert (found.id == first.id) == (moment < TTL)
            return found.outcome

    assert at(TTL - MOMENT) == "duplicate"
    assert (JobPayload.objects.get().result, claimer().take(1, 0)) == ('{"row":7}', [])
    assert at(TTL) in {"created", "created_after_expiry"}
    assert Job.objects.count() == 2
    assert IdempotencyKey.objects.get().job_id != first.id
    check_invariants()


def test_f33_message_and_finish_that_come_again(declare: Declare, table: object) -> None:
    """F33: after the success the message is a duplicate with its job; the old worker's finish is refused; no row more."""

    def handler(data: dict[str, int]) -> None:
        write(data["n"])

    consumer = declare(handler)
    first = receive("payments", "evt_1", {"n": 7}, consumer=consumer)
    attempt = take()
    run(attempt)
    before = list(Job.objects.values())

    again = receive("payments", "evt_1", {"n": 7}, consumer=consumer)
    with pytest.raises(LeaseLostError):
        succeed(attempt.claimed, result=None, budget=timedelta(minutes=1))
    run(attempt)

    assert (first.outcome, again.outcome, again.job_id) == ("created", "duplicate", first.job_id)
    assert list(Job.objects.values()) == before
    assert claimer().take(1, 0) == []
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["succeeded"]
    assert InboxMessage.objects.count() == 1
    assert table() == [7]  # type: ignore[operator]
    check_invariants()
