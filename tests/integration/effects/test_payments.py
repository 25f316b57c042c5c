"""Effects against the real payments provider: what dies in between, and how often the order is charged."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from django_jobs.exceptions import (
    EffectNeedsReviewError,
    EffectRejected,
    EffectUncertain,
    LeaseLostError,
    RateLimited,
    TransientError,
)
from django_jobs.models import Reconciliation, Send
from django_jobs.worker.attempt import RunningAttempt
from testproject.payments import operations
from testproject.payments.operations import charge, charge_blind, charge_without_key
from testproject.payments.process import ProviderProcess
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    claimed,
    effect_row,
    epochs,
    lost,
    outcomes,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)


def pay(attempt: RunningAttempt, operation: object = charge, *, amount: str = "12.50", **options: object) -> str:
    """Charge order 7 and return the provider's reference."""
    return act(attempt, operation, order_id=7, amount=Decimal(amount), **options).provider_ref


def posts(provider: ProviderProcess) -> list[dict[str, object]]:
    """The charge requests that arrived, oldest first."""
    return [request for request in provider.requests(7) if request["method"] == "POST"]


def test_charge_is_applied_and_recorded(time: MovableClock, provider: ProviderProcess) -> None:
    """The plain way: one request, one charge, and the receipt names it."""
    reference = pay(running())

    assert provider.ledger()["charges"][0]["id"] == reference
    assert effect_row().provider_ref == reference
    assert Send.objects.get().provider_request_id.startswith("req_")


def test_death_before_the_intent_is_recorded_sends_nothing(
    time: MovableClock, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead before the intent has committed: no row, no request; the next attempt charges plainly."""
    first = running()
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.store.effects.rejoin", raise_crash)
        with pytest.raises(Crash):
            pay(first)
    assert (outcomes(), posts(provider)) == ([], [])

    pay(again(first))

    assert provider.applied(7) == 1


def raise_crash(*args: object, **kwargs: object) -> None:
    """End the process here."""
    raise Crash


def test_death_after_the_intent_asks_first(
    time: MovableClock, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead before the socket was written: the open send counts as possibly made, so the provider is asked first."""
    first = running()
    with monkeypatch.context() as patch:
        patch.setattr(operations, "configured_client", raise_crash)
        with pytest.raises(Crash):
            pay(first)

    pay(again(first))

    assert [request["method"] for request in provider.ledger()["requests"]] == ["GET", "POST"]
    assert outcomes() == ["unknown", "confirmed"]
    assert provider.applied(7) == 1


def test_r44_death_after_the_charge_asks_before_it_repeats(
    time: MovableClock, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge was applied and the worker died before it was recorded: the next attempt asks, finds it, sends nothing."""
    first = running()
    with monkeypatch.context() as patch:
        patch.setattr(operations, "_outcome", raise_crash)
        with pytest.raises(Crash):
            pay(first)
    assert (provider.applied(7), effect_row().state, outcomes()) == (1, "in_flight", [None])

    reference = pay(again(first))

    assert provider.applied(7) == 1
    assert len(posts(provider)) == 1
    assert reference == provider.ledger()["charges"][0]["id"]
    assert (effect_row().state, effect_row().resolved_by) == ("succeeded", "reconciliation")


def test_r44_lost_response_is_unknown_until_the_provider_confirms(
    time: MovableClock, provider: ProviderProcess
) -> None:
    """A response that never came: the send is unknown, then the question confirms the effect; one charge in total."""
    provider.script(7, "drop_response")
    first = running()
    with pytest.raises(EffectUncertain):
        pay(first)
    states = [effect_row().state]

    pay(after_waiting(first))

    assert [*states, effect_row().state] == ["ambiguous", "succeeded"]
    assert provider.applied(7) == 1


def test_request_that_was_lost_is_sent_again_under_its_key(time: MovableClock, provider: ProviderProcess) -> None:
    """The request never arrived: the provider does not know it, so the same key goes out again."""
    provider.script(7, "drop_request")
    first = running()
    with pytest.raises(EffectUncertain):
        pay(first)

    pay(after_waiting(first))

    assert provider.applied(7) == 1
    assert len({request["key"] for request in posts(provider)}) == 1


def test_death_after_the_receipt_skips_the_charge(time: MovableClock, provider: ProviderProcess) -> None:
    """Dead after the answer was recorded: the next attempt takes the receipt and the provider hears nothing."""
    first = running()
    reference = pay(first)

    assert pay(again(first)) == reference
    assert len(provider.requests()) == 1


def test_answer_of_a_stale_worker_is_accepted_as_evidence(
    time: MovableClock, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job went to another worker during the call: the answer is recorded all the same, and nobody charges again."""
    first = running()
    client = operations.configured_client

    def lose_the_job() -> object:
        lost(first)
        monkeypatch.undo()
        return client()

    monkeypatch.setattr(operations, "configured_client", lose_the_job)
    reference = pay(first)
    assert effect_row().state == "succeeded"

    assert pay(claimed(first.job_id)) == reference
    with pytest.raises(LeaseLostError):
        pay(first)
    assert len(posts(provider)) == 1


def test_death_between_not_applied_and_the_repetition_sends(
    time: MovableClock, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead after the provider had answered "not found" for good: the conclusion stands and the next attempt sends."""
    provider.script(7, "drop_request")
    first = running()
    with pytest.raises(EffectUncertain):
        pay(first, charge_without_key)
    time.advance(seconds=40)
    second = after_waiting(first)
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.effects.record.Performance._send", raise_crash)
        patch.setattr("django_jobs.store.effects._send", raise_crash)
        with pytest.raises(Crash):
            pay(second, charge_without_key)
    assert outcomes() == ["not_applied"]

    pay(again(second), charge_without_key)

    assert provider.applied(7) == 1
    assert outcomes() == ["not_applied", "confirmed"]


def test_charge_without_key_is_asked_for_and_never_sent_blindly(time: MovableClock, provider: ProviderProcess) -> None:
    """No key, a lost response: after the settle time the order is looked up, found, and not charged again."""
    provider.script(7, "drop_response")
    first = running()
    with pytest.raises(EffectUncertain):
        pay(first, charge_without_key)
    second = after_waiting(first)
    with pytest.raises(EffectUncertain):
        pay(second, charge_without_key)
    time.advance(seconds=40)

    pay(after_waiting(second), charge_without_key)

    assert [request["method"] for request in provider.requests(7)] == ["POST", "GET"]
    assert provider.applied(7) == 1
    assert posts(provider)[0]["key"] is None


def test_blind_charge_goes_to_a_human(time: MovableClock, provider: ProviderProcess) -> None:
    """No key and no question, a lost response: a human decides; the order was charged once."""
    provider.script(7, "drop_response")

    with pytest.raises(EffectNeedsReviewError):
        pay(running(), charge_blind)

    assert (provider.applied(7), effect_row().needs_review) == (1, True)


def test_declined_card_is_a_business_result(time: MovableClock, provider: ProviderProcess) -> None:
    """402: known not applied; the handler gets the reason, and another try needs another key."""
    provider.script(7, "declined")
    first = running()
    with pytest.raises(EffectRejected, match="card_declined") as caught:
        pay(first)

    pay(again(first))

    assert caught.value.status == 402
    assert epochs() == [0, 1]
    assert len({request["key"] for request in posts(provider)}) == 2


def test_declined_card_without_a_response_is_found_out(
    time: MovableClock, provider: ProviderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decline whose answer was lost: the question finds it, and the handler gets a rejection instead of a charge."""
    provider.script(7, "declined")
    first = running()
    with monkeypatch.context() as patch:
        patch.setattr(operations, "_outcome", raise_crash)
        with pytest.raises(Crash):
            pay(first)

    with pytest.raises(EffectRejected):
        pay(again(first))

    assert (provider.applied(7), len(posts(provider)), outcomes()) == (0, 1, ["rejected"])


def test_rate_limit_is_a_transient_rejection(time: MovableClock, provider: ProviderProcess) -> None:
    """429: not applied, come back after the time that the provider names, under the same key."""
    provider.script(7, "rate_limited", seconds=3)
    first = running()
    with pytest.raises(RateLimited) as caught:
        pay(first)

    pay(again(first))

    assert caught.value.retry_after.total_seconds() == 3
    assert len({request["key"] for request in posts(provider)}) == 1


def test_provider_that_is_down_is_not_sent_to(time: MovableClock, provider: ProviderProcess) -> None:
    """Connection refused: proved not sent, a transient failure; the next attempt sends plainly."""
    first = running()
    provider.stop()
    try:
        with pytest.raises(TransientError, match="not sent"):
            pay(first)
    finally:
        provider.start()

    pay(again(first))

    assert outcomes() == ["rejected", "confirmed"]
    assert epochs() == [0, 0]


@pytest.mark.parametrize("fault", ["server_error_applied", "malformed"])
def test_unclear_answer_is_asked_about(time: MovableClock, provider: ProviderProcess, fault: str) -> None:
    """A 500 or an unreadable 200 proves nothing: the provider is asked, and the charge it made is found."""
    provider.script(7, fault)
    first = running()
    with pytest.raises(EffectUncertain):
        pay(first)

    pay(after_waiting(first))

    assert (provider.applied(7), len(posts(provider))) == (1, 1)
    assert Reconciliation.objects.get().verdict == "succeeded"


def test_slow_provider_is_given_up_at_the_deadline(
    time: MovableClock, provider: ProviderProcess, settings: Any
) -> None:
    """A provider that holds the answer: the call ends at its deadline as unclear, and the charge is found later."""
    settings.DJANGO_JOBS = {"MAX_CALL": timedelta(seconds=1)}
    provider.script(7, "hold_after_apply")
    first = running()
    with pytest.raises(EffectUncertain):
        pay(first)
    provider.release(7)

    pay(after_waiting(first))

    assert (provider.applied(7), len(posts(provider))) == (1, 1)
