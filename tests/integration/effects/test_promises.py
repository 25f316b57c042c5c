"""What was promised when a request was first sent holds for it, whatever a deploy declares while it is unclear."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Rejected, Unknown
from django_jobs.domain.effects import Reconciliation, Verdict
from django_jobs.exceptions import EffectNeedsReviewError, EffectUncertain
from django_jobs.models import Send
from tests.integration.effects.factories import (
    FakeProvider,
    MovableClock,
    act,
    after_waiting,
    again,
    blind,
    effect_row,
    keyed,
    natural,
    outcomes,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)

UNCLEAR = Unknown("read timed out")


def redeployed(provider: FakeProvider, **promise: Any) -> FakeProvider:
    """The same operation after a deploy that declares something else about it."""
    return replace(provider, guarantees=replace(provider.guarantees, **promise), calls=[], requests=[], questions=[])


def test_deploy_does_not_change_what_a_rejection_says_about_the_key_of_an_open_send(time: MovableClock) -> None:
    """The provider was declared to forget its rejections; a deploy says otherwise while a send is open."""
    before = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, before)

    after = redeployed(before, caches_failures=True)
    after.answers = [Rejected("card_declined", status=402)]
    with pytest.raises(EffectUncertain):
        act(after_waiting(first), after)

    assert list(Send.objects.order_by("number").values_list("key_is_burnt", flat=True)) == [False, False]
    assert effect_row().caches_failures is False


def test_deploy_does_not_change_what_a_failure_found_by_asking_means(time: MovableClock) -> None:
    """ "Failed" is final beside a send that may still arrive only if the provider was declared to repeat failures."""
    before = keyed(UNCLEAR, asks=True)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, before)

    after = redeployed(before, caches_failures=True)
    after.found = [Reconciliation(Verdict.FAILED)]
    with pytest.raises(EffectUncertain):
        act(after_waiting(first), after)

    assert outcomes() == ["unknown"]


def test_deploy_does_not_change_the_form_of_a_key_in_use(time: MovableClock) -> None:
    """Another alphabet holds for the next key; what may have been applied is repeated under the key that it had."""
    before = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, before)

    after = redeployed(before, key_alphabet="uuid", key_max_length=36)
    act(after_waiting(first), after)

    assert after.keys == before.keys
    assert (effect_row().key_alphabet, effect_row().key_max_length) == ("ascii", 255)


def test_question_that_was_declared_later_cannot_rule_out_an_older_send(time: MovableClock) -> None:
    """A deploy makes an operation askable: what was sent before may be unfindable, so "not found" proves nothing."""
    before = blind(UNCLEAR)
    first = running()
    with pytest.raises(EffectNeedsReviewError):
        act(first, before)
    time.advance(minutes=5)

    after = redeployed(before, can_reconcile=True)
    after.found = [Reconciliation(Verdict.NOT_FOUND)]
    with pytest.raises(EffectNeedsReviewError):
        act(again(first), after)

    assert (len(after.calls), len(after.questions), outcomes()) == (0, 1, ["unknown"])


def test_question_that_was_declared_later_may_find_an_older_send(time: MovableClock) -> None:
    """Found is found, whenever the question was declared."""
    before = blind(UNCLEAR)
    first = running()
    with pytest.raises(EffectNeedsReviewError):
        act(first, before)
    time.advance(minutes=5)

    after = redeployed(before, can_reconcile=True)
    after.found = [Reconciliation(Verdict.SUCCEEDED, provider_ref="ref-9")]

    assert act(again(first), after).provider_ref == "ref-9"


def test_longer_settling_declared_later_holds_for_the_next_send(time: MovableClock) -> None:
    """A deploy that knows of later arrivals is believed for what is sent from then on."""
    before = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, before)

    act(after_waiting(first), redeployed(before, settle=timedelta(minutes=9)))

    settled = [send.settled_at - send.deadline_at for send in Send.objects.order_by("number")]
    assert settled == [timedelta(seconds=30), timedelta(minutes=9)]


def test_rejection_recorded_after_the_keys_lifetime_settles_nothing(time: MovableClock) -> None:
    """The provider may have forgotten the key in between, and its refusal may be a first answer."""
    provider = keyed(UNCLEAR, lambda call: late(time))
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    with pytest.raises(EffectNeedsReviewError):
        act(after_waiting(first), provider)

    assert outcomes() == ["unknown", "rejected"]


def late(time: MovableClock) -> Rejected:
    """A remembered rejection that is written down a day later."""
    time.advance(hours=25)
    return Rejected("card_declined", key_is_burnt=True)


def test_natural_operation_that_can_be_asked_is_asked_before_it_is_repeated(time: MovableClock) -> None:
    """A repetition does no harm, but a question may save it; "not found" lets it go out at once."""
    provider = natural(UNCLEAR)
    provider.guarantees = replace(provider.guarantees, can_reconcile=True)
    provider.found = [Reconciliation(Verdict.NOT_FOUND)]
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)

    act(after_waiting(first), provider)

    assert (len(provider.questions), outcomes()) == (1, ["unknown", "confirmed"])
