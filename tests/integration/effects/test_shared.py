"""Two jobs that name the same business act: adopt, wait, take over, or ask a human. Never a second send."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_jobs import Confirmed, Rejected, Unknown
from django_jobs.domain.errors import ErrorRecord
from django_jobs.domain.retry import Counters
from django_jobs.domain.states import DeadReason, ErrorClass
from django_jobs.exceptions import (
    EffectChangedError,
    EffectKeyReusedError,
    EffectRejected,
    EffectsOpenError,
    EffectUncertain,
    NoTimeLeftError,
    TransientError,
)
from django_jobs.models import EffectAdoption, EffectStake, Send, SideEffect
from django_jobs.store import Failure, dead_letter, succeed
from django_jobs.store.adoptions import recheck_adopted
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
    job_row,
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


@pytest.mark.parametrize("of_another_job", [False, True])
def test_other_operation_under_the_same_name_and_key_is_refused(time: MovableClock, of_another_job: bool) -> None:
    """A refund gets no receipt of a charge, and a capture none of a reservation: nothing is left out in silence."""
    charge, refund = keyed(), keyed(name="fake.refund")
    first = running()
    act(first, charge)

    with pytest.raises(EffectChangedError) as caught:
        act(running(order_id=8) if of_another_job else first, refund)

    assert f"'{charge.name}'" in str(caught.value)
    assert "'fake.refund'" in str(caught.value)
    assert (len(charge.calls), len(refund.calls)) == (1, 0)
    assert not EffectAdoption.objects.exists()


def test_other_operation_gets_a_key_of_its_own_after_rejections(time: MovableClock) -> None:
    """What the provider refused for one operation says nothing about another one."""
    charge, refund = keyed(BUSY), keyed(name="fake.refund")
    first = running()
    with pytest.raises(TransientError):
        act(first, charge)

    act(again(first), refund)

    assert (epochs(), effect_row().operation) == ([0, 1], "fake.refund")
    assert charge.keys[0] != refund.keys[0]


def test_operation_that_was_renamed_is_the_same(time: MovableClock) -> None:
    """A receipt that was recorded under a former name holds."""
    charge = keyed()
    renamed = keyed(name="fake.pay", aliases=(charge.name,))
    first = running()
    act(first, charge)

    confirmed = act(again(first), renamed)

    assert confirmed.provider_ref
    assert renamed.calls == []


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


DECLINED = Rejected("card_declined", status=402)
BUDGET = timedelta(seconds=60)


def taken_over(then: Any, *, required: bool = True) -> tuple[RunningAttempt, RunningAttempt, Any]:
    """A job whose effect was rejected, and swallowed the rejection, and a second job that sent it again."""
    provider = keyed(DECLINED, then)
    first = running()
    with pytest.raises(EffectRejected):
        act(first, provider, required=required)
    second = running(order_id=8)
    with suppress(EffectUncertain, EffectRejected, Crash):
        act(second, provider)
    assert effect_row().job_id == second.job_id
    return first, second, provider


@pytest.mark.parametrize("then", [DECLINED, UNCLEAR, Crash(), Confirmed("ch_1")], ids=str)
def test_swallowed_rejection_of_a_required_effect_stands_against_success_after_a_takeover(
    time: MovableClock, then: Any
) -> None:
    """Whatever became of the effect under the other job, the first one may not succeed as if it had been applied."""
    first, _, _ = taken_over(then)

    with pytest.raises(EffectsOpenError, match="charge"):
        succeed(first, result=None, budget=BUDGET)


def test_refusal_that_may_be_swallowed_holds_only_while_it_is_true(time: MovableClock) -> None:
    """required=False: rejected again by the other job, the first may go on; applied by it, the first must look again."""
    first, _, _ = taken_over(DECLINED, required=False)
    succeed(first, result=None, budget=BUDGET)

    SideEffect.objects.all().delete()
    first, _, _ = taken_over(Confirmed("ch_1"), required=False)
    with pytest.raises(EffectsOpenError):
        succeed(first, result=None, budget=BUDGET)


def test_first_job_succeeds_once_it_has_adopted_what_the_other_one_did(time: MovableClock) -> None:
    """Asking again takes the receipt, and with it the first job may succeed."""
    first, _, provider = taken_over(Confirmed("ch_1"))

    receipt = act(again(first), provider)

    assert receipt.provider_ref == "ch_1"
    first = RunningAttempt(replace(first.claimed, attempt_id=job_row(first).attempt_id), first.definition, asked_at=0.0)
    with transaction.atomic():
        recheck_adopted(first)
        succeed(first, result=None, budget=BUDGET)


def test_effect_that_was_planned_and_taken_over_is_not_forgotten(time: MovableClock) -> None:
    """The first job had no time to send and swallowed that; the other one sends, and its outcome is unclear."""
    provider = keyed(UNCLEAR)
    first = running()
    first.ends_by = 0.0
    with pytest.raises(NoTimeLeftError):
        act(first, provider)
    with pytest.raises(EffectUncertain):
        act(running(order_id=8), provider)

    with pytest.raises(EffectsOpenError):
        succeed(first, result=None, budget=BUDGET)


@pytest.mark.parametrize("swallowed", ["wait", "reused", "changed"])
def test_asker_that_got_no_receipt_cannot_succeed_in_that_attempt(time: MovableClock, swallowed: str) -> None:
    """Another job owns the effect, and the asker swallows what it was told: its attempt does not succeed."""
    provider = keyed(Confirmed("ch_1") if swallowed == "changed" else UNCLEAR)
    first = running()
    with suppress(EffectUncertain):
        act(first, provider, amount=1)
    if swallowed == "reused":
        end(first)
    second = running(order_id=8)
    with pytest.raises((EffectUncertain, EffectKeyReusedError, EffectChangedError)):
        act(second, provider, amount=2 if swallowed == "changed" else 1)

    with pytest.raises(EffectsOpenError):
        succeed(second, result=None, budget=BUDGET)

    later = again(second)  # whose code does not ask any more
    succeed(later, result=None, budget=BUDGET)
    assert job_row(later).state == "succeeded"


def test_takeover_waits_for_a_completion_that_stands_on_the_rejection(time: MovableClock) -> None:
    """complete() locks what it stands on: another job cannot begin to send between its look and its commit."""
    provider = keyed(DECLINED)
    first = running()
    with pytest.raises(EffectRejected):
        act(first, provider, required=False)

    with transaction.atomic():
        recheck_adopted(first)
        if connection.vendor == "postgresql":
            other = connections.create_connection("default")
            other.inc_thread_sharing()
            try:
                with pytest.raises(OperationalError), other.cursor() as cursor:
                    cursor.execute("SELECT id FROM django_jobs_sideeffect FOR NO KEY UPDATE NOWAIT")
            finally:
                other.close()
        succeed(first, result=None, budget=BUDGET)

    act(running(order_id=8), provider)
    assert not EffectStake.objects.exists()
