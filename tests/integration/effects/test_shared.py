"""Two jobs that name the same business act: adopt, wait, take over, or ask a human. Never a second send."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from django_jobs import Confirmed, Rejected, Unknown
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import DeadReason, ErrorClass
from django_jobs.exceptions import EffectChangedError, EffectKeyReusedError, EffectUncertain, TransientError
from django_jobs.models import EffectAdoption, Send, SideEffect
from django_jobs.store import Failure, dead_letter, succeed
from django_jobs.store.effects import recheck_adopted
from django_jobs.worker.attempt import RunningAttempt
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    blind,
    effect_row,
    epochs,
    keyed,
    natural,
    outcomes,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)

UNCLEAR = Unknown("read timed out")
BUSY = Rejected("busy", permanent=False)


def end(attempt: RunningAttempt) -> None:
    """Leave the job to a human."""
    error = ErrorRecord(type="ValueError", message="no", traceback="", fingerprint="v1:0")
    failure = Failure(error=error, error_class=ErrorClass.UNKNOWN, counters=Counters(unknown=1))
    dead_letter(attempt, failure=failure, reason=DeadReason.UNKNOWN_BUDGET, budget=timedelta(seconds=60))


def test_second_job_adopts_the_receipt(time: MovableClock) -> None:
    """Applied by another job for the same act: the receipt is taken, the adoption is a row, nothing is sent."""
    provider = keyed(Confirmed("ch_1", result={"id": "ch_1"}))
    first = running()
    act(first, provider)
    second = running(order_id=8)

    receipt = act(second, provider)

    assert (receipt.provider_ref, receipt.result, len(provider.calls)) == ("ch_1", {"id": "ch_1"}, 1)
    adoption = EffectAdoption.objects.get()
    assert (adoption.job_id, adoption.effect_id) == (second.job_id, effect_row().pk)
    assert effect_row().job_id == first.job_id


def test_adoption_is_recorded_once_over_attempts(time: MovableClock) -> None:
    """The same adoption in a later attempt is no second row."""
    provider = keyed()
    act(running(), provider)
    second = running(order_id=8)
    act(second, provider)

    act(again(second), provider)

    assert EffectAdoption.objects.count() == 1


@pytest.mark.parametrize("answer", [UNCLEAR, Crash()])
def test_second_job_waits_while_the_owner_finds_out(time: MovableClock, answer: Any) -> None:
    """Open or unclear under a job that still works on it: the second one waits, and sends nothing."""
    provider = keyed(answer)
    first = running()
    with pytest.raises((EffectUncertain, Crash)):
        act(first, provider)

    with pytest.raises(EffectUncertain) as caught:
        act(running(order_id=8), provider)

    assert caught.value.retry_at > time.now
    assert (len(provider.calls), effect_row().job_id) == (1, first.job_id)


def test_second_job_is_refused_when_the_owner_has_ended_unclear(time: MovableClock) -> None:
    """Unclear under a job that will not find out: a human looks at both jobs, which the message names."""
    provider = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    end(first)
    second = running(order_id=8)

    with pytest.raises(EffectKeyReusedError) as caught:
        act(second, provider)

    assert str(first.job_id) in str(caught.value)
    assert str(second.job_id) in str(caught.value)
    assert len(provider.calls) == 1


def test_second_job_takes_over_what_was_rejected(time: MovableClock) -> None:
    """All rejected: the second job sends under the same key and operation id, and owns the effect from then on."""
    provider = keyed(BUSY)
    first = running()
    with pytest.raises(TransientError):
        act(first, provider)
    second = running(order_id=8)

    act(second, provider)

    assert effect_row().job_id == second.job_id
    assert len(set(provider.keys)) == 1
    assert {call.operation_id for call in provider.calls} == {str(first.job_id)}


def test_two_jobs_at_once_send_once(time: MovableClock) -> None:
    """Both ask at the same time: one sends, the other waits or adopts; the act happens once."""
    provider = keyed()
    attempts = [running(), running(order_id=8)]
    gate = threading.Barrier(2)
    results: list[object] = []

    def ask(attempt: RunningAttempt) -> None:
        gate.wait(timeout=30)
        try:
            results.append(act(attempt, provider))
        except EffectUncertain as error:
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask, args=[attempt]) for attempt in attempts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(results) == 2
    assert len(provider.calls) == 1
    assert (SideEffect.objects.count(), outcomes()) == (1, ["confirmed"])


def test_changed_request_is_refused_after_it_may_have_been_applied(time: MovableClock) -> None:
    """Another request while the first may have been applied: refused, naming both digests."""
    provider = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider, amount=1)
    stored = effect_row().request_digest

    with pytest.raises(EffectChangedError) as caught:
        act(after_waiting(first), provider, amount=2)

    assert stored in str(caught.value)
    assert str(caught.value).count("v1:") == 2
    assert len(provider.calls) == 1


def test_changed_request_of_another_job_is_refused(time: MovableClock) -> None:
    """A receipt for another request is not adopted."""
    provider = keyed()
    act(running(), provider, amount=1)

    with pytest.raises(EffectChangedError):
        act(running(order_id=8), provider, amount=2)

    assert not EffectAdoption.objects.exists()


def test_changed_request_opens_a_new_epoch_after_rejections(time: MovableClock) -> None:
    """All rejected and the request was corrected: the new bytes go out under a new key."""
    provider = keyed(BUSY)
    first = running()
    with pytest.raises(TransientError):
        act(first, provider, amount=1)

    act(again(first), provider, amount=2)

    assert epochs() == [0, 1]
    assert len(set(provider.keys)) == 2
    assert effect_row().request == '{"amount":2}'


def test_same_name_with_another_request_in_one_attempt_is_refused(time: MovableClock) -> None:
    """A loop without key= is a mistake that the second round tells, also when the first one was rejected."""
    provider = keyed(BUSY)
    attempt = running()
    with pytest.raises(TransientError):
        act(attempt, provider, line=1)

    with pytest.raises(EffectChangedError, match="pass key="):
        act(attempt, provider, line=2)

    assert len(provider.calls) == 1


def test_loop_with_keys_makes_an_effect_per_line(time: MovableClock) -> None:
    """With key= each line is an act of its own."""
    provider = keyed()
    attempt = running()

    for line in (1, 2):
        act(attempt, provider, key=f"line:{line}", line=line)

    assert SideEffect.objects.count() == 2
    assert len(set(provider.keys)) == 2


def test_completion_rechecks_adopted_effects(time: MovableClock) -> None:
    """A receipt that does not hold any more lets no adopter complete; one that holds does."""
    provider = keyed()
    act(running(), provider)
    second = running(order_id=8)
    act(second, provider)
    with transaction.atomic():
        recheck_adopted(second)
    SideEffect.objects.update(state="ambiguous", resolved_by="", resolved_at=None)

    with pytest.raises(EffectKeyReusedError, match="does not hold"), transaction.atomic():
        recheck_adopted(second)


def test_owner_may_succeed_after_its_effect_was_adopted(time: MovableClock) -> None:
    """Adoption takes nothing from the owner."""
    provider = natural()
    first = running()
    act(first, provider)
    act(running(order_id=8), provider)

    succeed(first, result=None, budget=timedelta(seconds=60))

    assert Send.objects.count() == 1


def test_abandoned_effect_of_another_job_is_not_taken_for_done(time: MovableClock) -> None:
    """What one job gave up is no receipt for another one."""
    provider = blind(UNCLEAR)
    act(running(), provider, on_ambiguous="accept")

    with pytest.raises(EffectKeyReusedError):
        act(running(order_id=8), provider, on_ambiguous="accept")

    assert len(provider.calls) == 1
