"""Each row of the table "what may be done next", by what was sent so far and what the provider promises."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobs import Confirmed, Rejected, Unknown
from django_jobs.domain.effects import Reconciliation, Verdict
from django_jobs.exceptions import (
    EffectNeedsReviewError,
    EffectRejected,
    EffectUncertain,
    RateLimited,
    TransientError,
)
from django_jobs.models import Reconciliation as ReconciliationRow
from django_jobs.worker.finish import record_error
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    askable,
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


def test_first_send_is_confirmed_and_recorded(time: MovableClock) -> None:
    """Nothing sent: the request goes out once, and the receipt is the provider's."""
    provider = keyed(Confirmed("ch_1", provider_request_id="req_1", status=201, result={"id": "ch_1"}))

    receipt = act(running(), provider)

    assert receipt == Confirmed("ch_1", provider_request_id="req_1", status=201, result={"id": "ch_1"})
    row = effect_row()
    assert (row.state, row.provider_ref, row.resolved_by, row.business_key) == ("succeeded", "ch_1", "send", "order:7")
    assert outcomes() == ["confirmed"]


def test_confirmed_effect_is_skipped_by_later_attempts(time: MovableClock) -> None:
    """A confirmed send: the next attempt gets the same receipt and sends nothing."""
    provider = keyed(Confirmed("ch_1", status=201, result={"id": "ch_1", "amount": "12.50"}))
    first = running()
    receipt = act(first, provider)

    repeated = act(again(first), provider)

    assert (repeated.provider_ref, repeated.result, repeated.replayed) == (receipt.provider_ref, receipt.result, True)
    assert len(provider.calls) == 1


def test_transient_rejection_is_sent_again_under_the_same_key(time: MovableClock) -> None:
    """All sends rejected: the next attempt sends again; a key that is not burnt stays."""
    provider = keyed(Rejected("busy", permanent=False, retry_after=timedelta(seconds=9)), caches_failures=True)
    first = running()
    with pytest.raises(RateLimited) as caught:
        act(first, provider)

    act(again(first), provider)

    assert caught.value.retry_after == timedelta(seconds=9)
    assert outcomes() == ["rejected", "confirmed"]
    assert len(set(provider.keys)) == 1


def test_rejection_without_a_wish_is_transient(time: MovableClock) -> None:
    """A rejection that is not permanent and names no time is an ordinary transient failure."""
    with pytest.raises(TransientError, match="not sent"):
        act(running(), keyed(Rejected("not sent: refused", permanent=False)))

    assert effect_row().state == "rejected"


def test_burnt_key_is_replaced_after_a_rejection(time: MovableClock) -> None:
    """All sends rejected and the key would repeat the rejection: the next send opens a new epoch with another key."""
    provider = keyed(Rejected("card_declined", status=402, provider_request_id="req_1"), caches_failures=True)
    first = running()
    with pytest.raises(EffectRejected) as caught:
        act(first, provider)

    act(again(first), provider)

    assert (caught.value.reason, caught.value.status, caught.value.provider_request_id) == (
        "card_declined",
        402,
        "req_1",
    )
    assert epochs() == [0, 1]
    assert len(set(provider.keys)) == 2


def test_natural_effect_is_sent_again_when_unclear(time: MovableClock) -> None:
    """Unclear, and the same bytes converge: the next attempt sends them again."""
    provider = natural(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    act(after_waiting(first), provider)

    assert provider.requests[0] == provider.requests[1]
    assert outcomes() == ["unknown", "confirmed"]


def test_key_is_sent_again_inside_its_life(time: MovableClock) -> None:
    """Unclear, and the key lives: the same key and bytes are sent again, which is the question."""
    provider = keyed(UNCLEAR, Confirmed("ch_1", replayed=True))
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    receipt = act(after_waiting(first), provider)

    assert receipt.replayed
    assert len(set(provider.keys)) == 1
    assert effect_row().state == "succeeded"


def test_provider_with_keys_is_asked_once_before_a_repetition(time: MovableClock) -> None:
    """Unclear, the key lives and the provider can be asked: first the question, then the same key."""
    provider = keyed(UNCLEAR, asks=True, found=[Verdict.NOT_FOUND])
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    act(after_waiting(first), provider)

    assert len(provider.questions) == 1
    assert len(set(provider.keys)) == 1
    row = ReconciliationRow.objects.get()
    assert (row.verdict, row.is_final) == ("not_found", False)
    assert outcomes() == ["unknown", "confirmed"]


def test_question_waits_until_the_send_has_settled(time: MovableClock) -> None:
    """Unclear without a key: the provider is not asked before the send can no longer be applied."""
    provider = askable(UNCLEAR, visible_after=timedelta(seconds=60))
    first = running()
    with pytest.raises(EffectUncertain) as caught:
        act(first, provider)

    with pytest.raises(EffectUncertain):
        act(after_waiting(first), provider)

    assert caught.value.retry_at == time.now + timedelta(seconds=5 + 30 + 60)
    assert provider.questions == []
    assert len(provider.calls) == 1


def test_found_effect_succeeds_without_another_send(time: MovableClock) -> None:
    """Asked and found: the effect succeeded; the sends stay as they were seen."""
    found = Reconciliation(Verdict.SUCCEEDED, provider_ref="ch_9", evidence={"status": "succeeded", "card": "4242"})
    provider = askable(UNCLEAR, found=[found])
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    time.advance(seconds=36)

    receipt = act(after_waiting(first), provider)

    assert (receipt.provider_ref, receipt.replayed) == ("ch_9", True)
    row = effect_row()
    assert (row.state, row.resolved_by) == ("succeeded", "reconciliation")
    assert outcomes() == ["unknown"]
    assert ReconciliationRow.objects.get().evidence == '{"card":"[redacted]","status":"succeeded"}'


def test_effect_that_was_not_found_is_sent_again(time: MovableClock) -> None:
    """Asked after the send has settled and not found: known not applied, so it is sent again."""
    provider = askable(UNCLEAR, found=[Verdict.NOT_FOUND])
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    time.advance(seconds=36)

    receipt = act(after_waiting(first), provider)

    assert receipt.provider_ref == "ref-2"
    assert outcomes() == ["not_applied", "confirmed"]
    assert ReconciliationRow.objects.get().is_final


def test_effect_that_failed_at_the_provider_is_rejected(time: MovableClock) -> None:
    """Asked, and the provider says that it failed for good: the handler gets the rejection, nothing is sent."""
    provider = askable(UNCLEAR, found=[Verdict.FAILED])
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    time.advance(seconds=36)

    with pytest.raises(EffectRejected):
        act(after_waiting(first), provider)

    assert outcomes() == ["rejected"]
    assert len(provider.calls) == 1


@pytest.mark.parametrize("found", [Verdict.PENDING, Verdict.UNAVAILABLE, ConnectionError("down"), "nonsense"])
def test_question_without_an_answer_is_asked_again_later(time: MovableClock, found: object) -> None:
    """Asked without an answer: the attempt ends as a wait, and nothing is sent."""
    provider = askable(UNCLEAR, found=[found])  # type: ignore[list-item]
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    time.advance(seconds=36)

    with pytest.raises(EffectUncertain) as caught:
        act(after_waiting(first), provider)

    assert caught.value.retry_at > time.now
    assert len(provider.calls) == 1
    assert effect_row().state == "ambiguous"


def test_unclear_effect_goes_to_review_when_nobody_can_be_asked(time: MovableClock) -> None:
    """Unclear, no key, no question: a human decides, and nothing is sent again."""
    provider = blind(UNCLEAR)
    first = running()
    with pytest.raises(EffectNeedsReviewError, match="read timed out"):
        act(first, provider)

    with pytest.raises(EffectNeedsReviewError):
        act(again(first), provider)

    row = effect_row()
    assert (row.state, row.needs_review, len(provider.calls)) == ("ambiguous", True, 1)
    assert row.review_reason


def test_resend_repeats_an_unclear_effect(time: MovableClock) -> None:
    """on_ambiguous="resend": duplicates are accepted, the next attempt sends again."""
    provider = blind(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider, on_ambiguous="resend")

    act(after_waiting(first), provider, on_ambiguous="resend")

    assert outcomes() == ["unknown", "confirmed"]


def test_accept_abandons_an_unclear_effect(time: MovableClock) -> None:
    """on_ambiguous="accept": the effect is recorded as abandoned with its reason, and the handler goes on."""
    provider = blind(UNCLEAR)
    first = running()

    receipt = act(first, provider, on_ambiguous="accept")

    assert (receipt.abandoned, receipt.provider_ref) == (True, "")
    row = effect_row()
    assert (row.state, row.resolved_by, bool(row.review_reason)) == ("abandoned", "policy", True)
    assert act(again(first), provider, on_ambiguous="accept").abandoned
    assert len(provider.calls) == 1


def test_exception_of_an_operation_is_unknown(time: MovableClock) -> None:
    """An exception proves nothing: the send is unclear, its reason is kept and redacted."""
    provider = natural(RuntimeError("boom password=hunter2"))

    with pytest.raises(EffectUncertain):
        act(running(), provider)

    row = effect_row()
    assert row.state == "ambiguous"
    reason = row.sends.get().reason
    assert reason.startswith("RuntimeError: boom")
    assert "hunter2" not in reason


def test_answer_that_is_no_outcome_is_unknown(time: MovableClock) -> None:
    """An operation that returns something else has taught nothing."""
    with pytest.raises(EffectUncertain, match="NoneType"):
        act(running(), natural(lambda call: None))  # type: ignore[arg-type,return-value]

    assert outcomes() == ["unknown"]


def test_remembered_rejection_settles_earlier_sends_of_the_key(time: MovableClock) -> None:
    """The provider remembers a rejection under the key: the unclear sends with that key were not applied either."""
    provider = keyed(UNCLEAR, Rejected("card_declined", key_is_burnt=True), caches_failures=True)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    with pytest.raises(EffectRejected, match="card_declined"):
        act(after_waiting(first), provider)

    assert outcomes() == ["rejected", "rejected"]
    assert effect_row().state == "rejected"


def test_rejection_of_a_repetition_leaves_the_first_send_unclear(time: MovableClock) -> None:
    """A repetition that is refused for a reason of its own says nothing about the first request."""
    provider = keyed(UNCLEAR, Rejected("unauthorized", status=401), caches_failures=True)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    with pytest.raises(EffectUncertain):
        act(after_waiting(first), provider)

    assert outcomes() == ["unknown", "rejected"]
    assert effect_row().state == "ambiguous"


def test_process_that_dies_in_the_call_leaves_an_open_send(time: MovableClock) -> None:
    """Nothing is recorded by a process that is gone: the send stays open and counts as unclear."""
    provider = keyed(Crash(), Confirmed("ch_1", replayed=True))
    first = running()
    with pytest.raises(Crash):
        act(first, provider)
    assert (outcomes(), effect_row().state, first.open_call_until) == ([None], "in_flight", None)

    act(again(first), provider)

    assert outcomes() == ["unknown", "confirmed"]


def test_wish_of_an_unclear_answer_is_honoured_but_never_ends_the_wait_by_itself(time: MovableClock) -> None:
    """Retry-After beside an unclear outcome sets when the job asks again; nonsense in it does not dead-letter the job."""
    provider = keyed(Unknown("503", retry_after=timedelta(minutes=3)), Unknown("503", retry_after=timedelta(days=3660)))
    first = running()
    with pytest.raises(EffectUncertain) as caught:
        act(first, provider)
    assert caught.value.retry_at == time.now + timedelta(minutes=3)

    second = after_waiting(first)
    time.advance(hours=1)
    with pytest.raises(EffectUncertain) as caught:
        act(second, provider)

    assert caught.value.retry_at == time.now + timedelta(hours=23)
    record_error(second, caught.value)
    assert job_row(second).state == "scheduled"
