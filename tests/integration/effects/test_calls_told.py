"""Each request to a provider and each question is told with its outcome and its time; what was not sent is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_jobs import Confirmed, Rejected, Unknown
from django_jobs.domain.effects import Reconciliation, Verdict
from django_jobs.effects.call import DeadlinePassedError
from django_jobs.exceptions import EffectRejected, EffectUncertain, RateLimited
from tests.integration.effects.factories import MovableClock, act, after_waiting, askable, keyed, running
from tests.scenes import Told

pytestmark = pytest.mark.django_db(transaction=True)


def calls(told: Told) -> list[tuple[object, object]]:
    """Return outcome and wish of each call that was told."""
    return [(fields["outcome"], fields["retry_after"]) for fields in told.named("downstream.called")]


@pytest.mark.parametrize(
    ("answer", "raised", "outcome", "wish"),
    [
        (Confirmed("ch_1"), None, "confirmed", None),
        (Rejected("declined"), EffectRejected, "rejected", None),
        (Rejected("slow down", permanent=False, retry_after=timedelta(seconds=30)), RateLimited, "rejected", timedelta(seconds=30)),
        (Unknown("read timed out", retry_after=timedelta(minutes=2)), EffectUncertain, "unknown", timedelta(minutes=2)),
        (ValueError("broken"), EffectUncertain, "unknown", None),
        (lambda call: "yes", EffectUncertain, "unknown", None),
        (Rejected("untidy", retry_after="soon"), EffectRejected, "rejected", None),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_request_is_told(
    time: MovableClock, answer: Any, raised: type[Exception] | None, outcome: str, wish: timedelta | None
) -> None:
    """With the provider, the job's queue, type and priority, how long it took and how long it wants to be left alone."""
    attempt = running()
    with Told() as told:
        if raised is None:
            act(attempt, keyed(answer))
        else:
            with pytest.raises(raised):
                act(attempt, keyed(answer))

    assert calls(told) == [(outcome, wish)]
    (fields,) = told.named("downstream.called")
    assert (fields["downstream"], fields["job_type"], fields["queue_name"], fields["priority"]) == (
        "fake", "tests.effects.act", "default", 0,
    )  # fmt: skip
    seconds = fields["seconds"]
    assert isinstance(seconds, float)
    assert 0 <= seconds < 30


def test_request_that_came_too_late_is_no_request(time: MovableClock) -> None:
    """Its deadline had passed before the first byte."""
    with Told() as told, pytest.raises(Exception, match="too late"):
        act(running(), keyed(DeadlinePassedError("too late")))

    assert calls(told) == []


@pytest.mark.parametrize(
    ("found", "outcome"),
    [(Verdict.SUCCEEDED, "asked"), (Reconciliation(Verdict.PENDING), "asked"), (OSError("no route"), "not_answered"),
     ("yes", "not_answered"), (Verdict.UNAVAILABLE, "not_answered")],
)  # fmt: skip
def test_question_is_told(time: MovableClock, found: Any, outcome: str) -> None:
    """Whether the provider answered it."""
    provider, first = askable(Unknown("read timed out"), found=[found]), running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    time.advance(minutes=2)
    attempt = after_waiting(first)

    with Told() as told:
        if found is Verdict.SUCCEEDED:
            act(attempt, provider)
        else:
            with pytest.raises(EffectUncertain):
                act(attempt, provider)

    assert calls(told) == [(outcome, None)]
