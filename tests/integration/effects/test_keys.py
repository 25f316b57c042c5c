"""The key that a provider sees: one value for one business act, and never an old one after its life."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from django_jobs import Confirmed, Rejected, Unknown, effect
from django_jobs.conf import get_settings
from django_jobs.domain.effects import Outcome, Verdict
from django_jobs.effects.adapter import EffectOperation
from django_jobs.effects.call import EffectCall
from django_jobs.exceptions import DefinitionError, EffectNeedsReviewError, EffectUncertain
from django_jobs.models import Installation, Send, SideEffect
from testproject.payments.operations import charge
from testproject.payments.process import ProviderProcess
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    effect_row,
    epochs,
    keyed,
    outcomes,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)

UNCLEAR = Unknown("read timed out")


def version(number: int, behave: Callable[[EffectCall], Outcome]) -> EffectOperation:
    """A handler version: the same declared effect with other code."""

    def send(call: EffectCall, *, order_id: int) -> Outcome:
        return behave(call)

    send.__doc__ = f"Version {number}."
    return effect("fake.versioned", dedupe="key", key_lifetime=timedelta(hours=24))(send)


def test_r47_provider_key_never_changes(time: MovableClock) -> None:
    """Five attempts, a crash, and a new version of the code: the provider sees one key and one operation id."""
    seen: list[tuple[str, str]] = []

    def note(answer: Outcome | BaseException) -> Callable[[EffectCall], Outcome]:
        def behave(call: EffectCall) -> Outcome:
            seen.append((call.key, call.operation_id))
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return behave

    busy = Rejected("busy", permanent=False)
    attempt = running()
    for number, answer in enumerate([UNCLEAR, Crash(), busy, UNCLEAR], start=1):
        with pytest.raises((EffectUncertain, Crash)):
            act(attempt, version(number, note(answer)))
        attempt = again(attempt)
    act(attempt, version(5, note(Confirmed("ch_1"))))

    assert len(seen) == 5
    assert set(seen) == {(Send.objects.first().provider_key, str(attempt.job_id))}  # type: ignore[union-attr]
    assert Send.objects.values_list("number", flat=True).order_by("number")[4] == 5


def test_r47_the_real_provider_sees_one_key(time: MovableClock, provider: ProviderProcess) -> None:
    """Over lost requests and attempts the header that arrives has one value, and the bodies are equal."""
    provider.script(7, "drop_request", times=2)
    attempt = running()
    for _ in range(2):
        with pytest.raises(EffectUncertain):
            act(attempt, charge, order_id=7, amount=Decimal("12.50"))
        attempt = after_waiting(attempt)

    act(attempt, charge, order_id=7, amount=Decimal("12.50"))

    posts = [request for request in provider.requests(7) if request["method"] == "POST"]
    assert len(posts) == 3
    assert len({request["key"] for request in posts}) == 1


def test_r46_resent_body_is_byte_equal(time: MovableClock, provider: ProviderProcess) -> None:
    """A repetition sends the bytes of the first request, although the handler passes an equal value in another form."""
    provider.script(7, "drop_request")
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, charge, order_id=7, amount=Decimal("12.50"))

    act(after_waiting(first), charge, order_id=7, amount="12.50")

    posts = [request for request in provider.requests(7) if request["method"] == "POST"]
    assert len({request["body_sha256"] for request in posts}) == 1
    assert len(posts) == 2


def test_r46_expired_key_is_never_sent_again(time: MovableClock, provider: ProviderProcess) -> None:
    """25 hours later the provider has forgotten a key of 24 hours: it is asked, and the old key is not sent."""
    provider.script(7, "drop_response")
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, charge, order_id=7, amount=Decimal("12.50"))
    time.advance(hours=25)

    act(after_waiting(first), charge, order_id=7, amount=Decimal("12.50"))

    assert [request["method"] for request in provider.requests(7)] == ["POST", "GET"]
    assert provider.applied(7) == 1


def test_r46_unknown_operation_after_expiry_gets_a_new_key(time: MovableClock, provider: ProviderProcess) -> None:
    """25 hours later and the provider does not know the operation: sent again, but under another key."""
    provider.script(7, "drop_request")
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, charge, order_id=7, amount=Decimal("12.50"))
    time.advance(hours=25)

    act(after_waiting(first), charge, order_id=7, amount=Decimal("12.50"))

    keys = [request["key"] for request in provider.requests(7) if request["method"] == "POST"]
    assert len(set(keys)) == len(keys) == 2
    assert (epochs(), outcomes()) == ([0, 1], ["not_applied", "confirmed"])
    assert provider.applied(7) == 1


def test_r46_expired_key_without_a_question_goes_to_review(time: MovableClock) -> None:
    """25 hours later at a provider that cannot be asked: a human decides, nothing is sent."""
    provider = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    time.advance(hours=25)

    with pytest.raises(EffectNeedsReviewError):
        act(after_waiting(first), provider)

    assert len(provider.calls) == 1


def test_r46_cached_server_error_is_asked_about_and_not_repeated_for_ever(time: MovableClock) -> None:
    """A 500 that the provider repeats for the key is unknown each time, and each repetition has a question before it."""
    cached = Unknown("answered 500", status=500)
    provider = keyed(cached, cached, asks=True, found=[Verdict.NOT_FOUND, Verdict.SUCCEEDED])
    attempt = running()
    for _ in range(2):
        with pytest.raises(EffectUncertain):
            act(attempt, provider)
        attempt = after_waiting(attempt)

    act(attempt, provider)

    assert (len(provider.calls), len(provider.questions)) == (2, 2)
    assert len(set(provider.keys)) == 1
    assert effect_row().resolved_by == "reconciliation"


def test_default_key_is_the_job(time: MovableClock) -> None:
    """Without key= the effect is the job's own: another job with the same request is another act."""
    provider = keyed()
    first = running()
    act(first, provider, key=None)
    row = effect_row()

    act(running(order_id=8), provider, key=None)

    assert row.business_key == str(first.job_id)
    assert len(set(provider.keys)) == 2


def test_operation_that_requires_a_key_is_refused_without_one(time: MovableClock) -> None:
    """requires_key: without key= nothing is recorded and nothing sent; the message shows the mend."""
    with pytest.raises(DefinitionError, match=r'key=f"order:\{order\.pk\}"'):
        act(running(), charge, key=None, order_id=7, amount=Decimal("1.00"))

    assert not SideEffect.objects.exists()


def test_key_depends_on_the_namespace(time: MovableClock, settings: Any) -> None:
    """Two installations never share a key: the namespace of the settings, else the database's own, is part of it."""
    provider = keyed()
    act(running(), provider)
    SideEffect.objects.all().delete()
    Send.objects.all().delete()
    settings.DJANGO_JOBS = {"NAMESPACE": "another"}
    assert get_settings().namespace == "another"

    act(running(order_id=8), provider)

    assert len(set(provider.keys)) == 2


def test_lost_namespace_is_refused_once_keys_were_made(time: MovableClock) -> None:
    """Without the stored namespace new keys would repeat effects: refused, unless none was ever made."""
    Installation.objects.all().delete()
    provider = keyed(UNCLEAR)
    act(running(), keyed())
    Installation.objects.all().delete()

    with pytest.raises(DefinitionError, match="namespace"):
        act(running(order_id=8), provider, key="order:8")

    assert provider.calls == []


def test_operation_gets_the_same_values_each_time(time: MovableClock) -> None:
    """Values come in the types of the annotations, and unannotated ones as JSON: in the first request as in the next."""
    seen: list[tuple[object, object]] = []

    def send(call: EffectCall, *, amount: Decimal, when: Any) -> Outcome:
        seen.append((amount, when))
        return UNCLEAR

    operation = effect("fake.typed", dedupe="natural")(send)
    attempt = running()
    for amount in (Decimal("12.50"), "12.50"):
        with pytest.raises(EffectUncertain):
            act(attempt, operation, amount=amount, when=timedelta(seconds=1))
        attempt = after_waiting(attempt)

    assert seen == [(Decimal("12.50"), "P0DT00H00M01.000000S")] * 2
