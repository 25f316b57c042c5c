"""Untidy answers, rounds that do not end, and what is stored about an effect beside its state."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Confirmed, Unknown
from django_jobs.domain.effects import Reconciliation as Found
from django_jobs.domain.effects import Verdict
from django_jobs.domain.retry import RetryPolicy
from django_jobs.effects.record import Performance
from django_jobs.exceptions import (
    EffectUncertain,
)
from django_jobs.models import Send
from django_jobs.store import effects as store
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    askable,
    blind,
    effect_row,
    keyed,
    outcomes,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)

UNCLEAR = Unknown("read timed out")


@pytest.mark.parametrize(
    "answer",
    [
        Confirmed("ref-1", status="200 OK"),  # type: ignore[arg-type]
        Confirmed("ref-1", replayed=None),  # type: ignore[arg-type]
        Confirmed("ref-1", result=["a", "list"]),  # type: ignore[arg-type]
        Confirmed(12345),  # type: ignore[arg-type]
    ],
    ids=["status", "replayed", "result", "reference"],
)
def test_untidy_confirmation_is_kept(time: Any, answer: Confirmed) -> None:
    """An operation that fills its answer carelessly does not lose the news that the act happened."""
    attempt = running()

    act(attempt, blind(answer))

    assert effect_row().state == "succeeded"
    assert outcomes() == ["confirmed"]


def test_untidy_evidence_does_not_cost_the_verdict(time: Any) -> None:
    """A question that was answered with "applied" counts, whatever came as evidence."""
    attempt = running()
    provider = keyed(Unknown("lost"), asks=True)
    with pytest.raises(EffectUncertain):
        act(attempt, provider)
    provider.found = [Found(Verdict.SUCCEEDED, provider_ref="ref-1", evidence=["a list"])]  # type: ignore[arg-type]

    act(after_waiting(attempt), provider)

    assert effect_row().state == "succeeded"


def test_effect_that_is_decided_anew_again_and_again_ends_the_attempt(
    time: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds within one attempt are bounded, whatever the answers are."""
    monkeypatch.setattr(Performance, "advance", lambda self: None)

    with pytest.raises(EffectUncertain, match="decided anew 5 times"):
        act(running(), keyed())


def test_delays_of_an_operation_are_stored_with_its_effect(time: MovableClock) -> None:
    """The policy is stored as JSON, without the exception types that only code can name."""
    provider = keyed()
    provider.retry = RetryPolicy(base=timedelta(seconds=3), permanent=(ValueError,))

    act(running(), provider)

    stored = json.loads(effect_row().retry_policy)
    assert stored["base"] == "P0DT00H00M03.000000S"
    assert "permanent" not in stored


def test_second_confirmation_keeps_the_first_receipt(time: MovableClock) -> None:
    """Two requests that both were applied, as with a key that expired: both are kept, the receipt is the first one's."""
    provider = askable(Crash(), Confirmed("ch_2"), found=[Verdict.NOT_FOUND])
    first = running()
    with pytest.raises(Crash):
        act(first, provider)
    time.advance(seconds=36)
    act(again(first), provider)

    store.record(first, Send.objects.get(number=1).pk, Confirmed("ch_1"))

    assert outcomes() == ["confirmed", "confirmed"]
    assert effect_row().provider_ref == "ch_2"
