"""What protects the record itself: ownership, time, lost replies, evidence that comes late, and the completion."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_jobs import Confirmed, Rejected, Unknown, clock
from django_jobs.domain.effects import Verdict
from django_jobs.enqueue.inside import InsideJob
from django_jobs.exceptions import (
    ContextClosedError,
    DefinitionError,
    EffectRejected,
    EffectsOpenError,
    EffectTooLateError,
    EffectUncertain,
    KeyFormatError,
    LeaseLostError,
    NoTimeLeftError,
    PayloadError,
    TransientError,
)
from django_jobs.models import Reconciliation, Send, SideEffect
from django_jobs.signals import owner_alert
from django_jobs.store import effects as store
from django_jobs.worker.attempt import RunningAttempt
from django_jobs.worker.context import JobContext
from django_jobs.worker.finish import record_failure
from tests.integration.effects.factories import (
    Crash,
    MovableClock,
    act,
    after_waiting,
    again,
    askable,
    blind,
    claimed,
    effect_row,
    job_row,
    keyed,
    lost,
    natural,
    outcomes,
    running,
)

pytestmark = pytest.mark.django_db(transaction=True)

UNCLEAR = Unknown("read timed out")


def context_of(attempt: RunningAttempt) -> JobContext:
    """What a handler of this attempt holds."""
    inside = InsideJob(job_id=attempt.job_id, correlation_id="", traceparent="", commits_with_success=False)
    return JobContext(attempt, inside)


def test_attempt_that_lost_its_job_sends_nothing(time: MovableClock) -> None:
    """The intent is fenced: a stale attempt is refused before anything is recorded or sent."""
    provider = keyed()
    first = running()
    lost(first)

    with pytest.raises(LeaseLostError):
        act(first, provider)

    assert (provider.calls, SideEffect.objects.count()) == ([], 0)


def test_revoked_attempt_sends_nothing(time: MovableClock) -> None:
    """An attempt that was taken back, or has ended, is refused before the database is asked."""
    provider = keyed()
    revoked, closed = running(), running(order_id=8)
    revoked.revoke("overdue")
    closed.close()

    with pytest.raises(LeaseLostError):
        act(revoked, provider)
    with pytest.raises(ContextClosedError):
        act(closed, provider)

    assert provider.calls == []


def test_call_that_would_outlive_the_budget_is_not_made(time: MovableClock) -> None:
    """Too little of the budget is left: refused with nothing recorded; a receipt is still handed out."""
    provider = keyed()
    first = running()
    first.renewed_at -= 58

    with pytest.raises(NoTimeLeftError):
        act(first, provider)

    assert (provider.calls, Send.objects.count()) == ([], 0)
    second = again(first)
    act(second, provider)
    second.renewed_at -= 58
    assert act(second, provider).provider_ref == "ref-1"


def test_first_send_after_usefulness_is_refused(time: MovableClock) -> None:
    """The job is worth nothing any more and nothing was sent: it is not started now."""
    provider = keyed()
    attempt = running()
    object.__setattr__(attempt.claimed, "useful_until", time.now)

    with pytest.raises(EffectTooLateError, match="useful") as caught:
        act(attempt, provider)

    assert (provider.calls, SideEffect.objects.count()) == ([], 0)
    record_failure(attempt, caught.value)
    assert (job_row(attempt).state, job_row(attempt).dead_reason) == ("dead_lettered", "expired")


def test_repetition_after_usefulness_is_allowed(time: MovableClock) -> None:
    """What may have been applied is brought to its end, useful or not."""
    provider = keyed(UNCLEAR)
    first = running()
    with pytest.raises(EffectUncertain):
        act(first, provider)
    second = after_waiting(first)
    object.__setattr__(second.claimed, "useful_until", time.now)

    assert act(second, provider).provider_ref == "ref-2"


def test_call_whose_deadline_passed_before_it_began_is_not_made(
    time: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stood still between the intent and the call: nothing is sent, and the send is known as not sent."""
    provider = keyed()
    attempt = running()
    recorded = store.intend

    def slow(*args: Any, **options: Any) -> Any:
        found = recorded(*args, **options)
        real = clock.boot_seconds
        monkeypatch.setattr(clock, "boot_seconds", lambda: real() + 6)
        return found

    monkeypatch.setattr("django_jobs.effects.record.intend", slow)
    with pytest.raises(TransientError, match="Not sent"):
        act(attempt, provider)

    assert (provider.calls, outcomes(), effect_row().state) == ([], ["rejected"], "rejected")


def test_operation_may_check_the_deadline_itself(time: MovableClock) -> None:
    """check_deadline() right before the first byte: too late means known not sent."""

    def late(call: Any) -> Any:
        object.__setattr__(call, "ends_at", 0.0)
        call.check_deadline()

    with pytest.raises(TransientError):
        act(running(), keyed(late))

    assert (outcomes(), Send.objects.get().key_is_burnt) == (["rejected"], False)


def test_open_call_is_known_to_the_worker_while_it_runs(time: MovableClock) -> None:
    """While a request is inside its deadline the attempt says so, and not afterwards."""
    attempt = running()
    seen: list[bool] = []

    def look(call: Any) -> Confirmed:
        seen.append(attempt.has_open_call)
        seen.append(connection.in_atomic_block)
        return Confirmed("ch_1")

    act(attempt, keyed(look))

    assert (seen, attempt.open_call_until) == ([True, False], None)


@pytest.mark.parametrize("committed", [True, False])
def test_lost_reply_to_the_intent_is_read_back(
    time: MovableClock, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """The reply to the intent's COMMIT was lost: found under its id, or recorded again; one send, one request."""
    provider = keyed()
    real, calls = store.intend, []

    def flaky(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            if committed:
                real(*args, **options)
            raise OperationalError("server closed the connection")
        return real(*args, **options)

    monkeypatch.setattr("django_jobs.effects.record.intend", flaky)
    monkeypatch.setattr("django_jobs.effects.patience.pause", lambda seconds: None)

    act(running(), provider)

    assert (len(calls), len(provider.calls), outcomes()) == (2, 1, ["confirmed"])


def test_answer_is_kept_until_the_database_takes_it(time: MovableClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away when the answer comes: it is recorded when it is back, and nothing is sent again."""
    provider = keyed()
    real, failures = store.record, [OperationalError("gone"), OperationalError("gone")]

    def flaky(*args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*args, **options)

    monkeypatch.setattr("django_jobs.effects.record.record", flaky)
    monkeypatch.setattr("django_jobs.effects.patience.pause", lambda seconds: None)

    assert act(running(), provider).provider_ref == "ref-1"
    assert (len(provider.calls), outcomes()) == (1, ["confirmed"])


def test_database_that_stays_away_ends_the_wait(time: MovableClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the database has an end; the send stays open and the next attempt repeats it under its key."""
    provider = keyed()
    first = running()
    with monkeypatch.context() as patch:
        patch.setattr("django_jobs.effects.record.record", _always_gone)
        patch.setattr("django_jobs.effects.record.EVIDENCE_PATIENCE", timedelta(0))
        with pytest.raises(OperationalError):
            act(first, provider)
    assert outcomes() == [None]

    act(again(first), provider)

    assert len(set(provider.keys)) == 1


def _always_gone(*args: Any, **options: Any) -> Any:
    raise OperationalError("gone")


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        (None, Confirmed("x"), "confirmed"),
        ("unknown", Confirmed("x"), "confirmed"),
        ("not_applied", Confirmed("x"), "confirmed"),
        ("unknown", Rejected("no"), "rejected"),
        ("not_applied", UNCLEAR, "not_applied"),
        ("not_applied", Rejected("no"), "not_applied"),
        ("rejected", UNCLEAR, "rejected"),
        ("confirmed", UNCLEAR, "confirmed"),
        ("confirmed", Rejected("no"), "confirmed"),
    ],
)
def test_evidence_never_weakens_what_is_known(time: MovableClock, before: str | None, answer: Any, after: str) -> None:
    """A confirmation is taken always; any other answer replaces only an open or unclear one."""
    attempt = running()
    with pytest.raises(Crash):
        act(attempt, keyed(Crash()))
    send = Send.objects.get()
    Send.objects.update(outcome=before)

    recorded = store.record(attempt, send.pk, answer)

    assert outcomes() == [after]
    assert recorded.state == effect_row().state


@contextmanager
def alerted(heard: list[str]) -> Iterator[None]:
    """Note the reasons of the alerts that owners get in this block."""

    def hear(reason: str, **_: Any) -> None:
        heard.append(reason)

    owner_alert.connect(hear, weak=False)
    try:
        yield
    finally:
        owner_alert.disconnect(hear)


def test_late_confirmation_overrides_a_conclusion(time: MovableClock) -> None:
    """Concluded "not applied" and then confirmed after all: the effect is applied."""
    provider = askable(Crash(), Crash(), found=[Verdict.NOT_FOUND])
    first = running()
    with pytest.raises(Crash):
        act(first, provider)
    time.advance(seconds=36)
    second = again(first)
    with pytest.raises(Crash):
        act(second, provider)
    assert outcomes() == ["not_applied", None]

    heard: list[str] = []
    with alerted(heard):
        store.record(first, Send.objects.get(number=1).pk, Confirmed("ch_1"))

    assert act(again(second), provider).provider_ref == "ch_1"
    assert len(provider.calls) == 2
    assert heard == ["an effect that was judged not applied was applied"]


def test_recording_twice_changes_nothing(time: MovableClock) -> None:
    """The same evidence again is no change: not of the row, not of its revision."""
    attempt = running()
    act(attempt, keyed(Confirmed("ch_1")))
    before = SideEffect.objects.values().get()

    store.record(attempt, Send.objects.get().pk, Confirmed("ch_2"))

    assert SideEffect.objects.values().get() == before


def test_answer_that_cannot_be_stored_is_still_a_confirmation(time: MovableClock) -> None:
    """A provider's details with what no database stores: the confirmation is kept, the details are named."""
    receipt = act(running(), keyed(Confirmed("ch\x00_1" + "x" * 300, result={"bad": {1, 2}})))

    assert receipt.provider_ref.startswith("ch\\x00_1")
    assert len(receipt.provider_ref) == 255
    assert "not_stored" in receipt.result
    assert effect_row().state == "succeeded"


def test_send_numbers_have_no_gap_and_carry_their_attempt(time: MovableClock) -> None:
    """Each send names its attempt and fence, its times stand in order, and the numbers are gapless."""
    provider = natural(UNCLEAR, UNCLEAR)
    attempt = running()
    for _ in range(2):
        with pytest.raises(EffectUncertain):
            act(attempt, provider)
        attempt = after_waiting(attempt)
    act(attempt, provider)

    rows = list(Send.objects.order_by("number"))
    assert [(row.number, row.fence) for row in rows] == [(1, 1), (2, 2), (3, 3)]
    assert all(row.settled_at - row.deadline_at == timedelta(seconds=30) for row in rows)
    assert all(row.deadline_at - row.started_at == timedelta(seconds=5) for row in rows)


def test_promise_is_frozen_while_a_send_is_unclear(time: MovableClock) -> None:
    """New code that promises keys does not make an old blind request safe to repeat."""
    first = running()
    with pytest.raises(Crash):
        act(first, blind(Crash()))
    provider = keyed()
    with pytest.raises(Exception, match="not known"):
        act(again(first), provider)

    assert (provider.calls, effect_row().dedupe) == ([], "none")


def test_stale_question_concludes_nothing_about_newer_sends(time: MovableClock) -> None:
    """The provider was asked before a newer request was made: "not found" says nothing about that one."""
    provider = askable(Crash(), found=[Verdict.NOT_FOUND])
    first = running()
    with pytest.raises(Crash):
        act(first, provider)
    time.advance(seconds=36)
    second = again(first)
    real = provider.reconcile

    def stale(call: Any, **request: Any) -> Any:
        lost(second)
        other = askable(Crash(), found=[Verdict.NOT_FOUND])
        with pytest.raises(Crash):
            act(claimed(first.job_id), other)
        return real(call, **request)

    object.__setattr__(provider, "guarantees", provider.guarantees)
    questioned = _with_question(provider, stale)
    with pytest.raises(LeaseLostError):
        act(second, questioned)

    assert outcomes() == ["not_applied", None]
    assert list(Reconciliation.objects.order_by("id").values_list("is_final", flat=True)) == [True, False]


def _with_question(provider: Any, question: Any) -> Any:
    class Questioned:
        name, guarantees, timeout = provider.name, provider.guarantees, provider.timeout
        send = staticmethod(provider.send)
        reconcile = staticmethod(question)

    return Questioned()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "chargé"}, KeyFormatError),
        ({"key": ""}, KeyFormatError),
        ({"key": "order\n7"}, KeyFormatError),
        ({"on_ambiguous": "guess"}, DefinitionError),
        ({"content": "x" * 70_000}, PayloadError),
        ({"content": object()}, PayloadError),
    ],
)
def test_what_cannot_be_stored_is_refused_before_it_is_sent(
    time: MovableClock, options: dict[str, Any], error: type[Exception]
) -> None:
    """Names, keys, choices and requests are checked before any row is written."""
    provider = keyed()

    with pytest.raises(error):
        act(running(), provider, **options)

    assert (provider.calls, SideEffect.objects.count()) == ([], 0)


def test_large_request_is_refused_with_its_size(time: MovableClock) -> None:
    """A request beyond 64 KiB is refused, and the message says how large it is and what to do."""
    with pytest.raises(PayloadError, match="65536; store the content elsewhere"):
        act(running(), keyed(), content="x" * 70_000)


def test_completion_is_refused_while_an_effect_is_open(time: MovableClock) -> None:
    """A handler that swallowed an unclear effect cannot complete."""
    attempt = running()
    context = context_of(attempt)
    with pytest.raises(EffectUncertain):
        context.effect("charge", natural(UNCLEAR), key="order:7", order_id=7)

    with pytest.raises(EffectsOpenError, match="charge"), context.complete():
        pass

    assert job_row(attempt).state == "running"


def test_completion_is_refused_after_a_required_rejection(time: MovableClock) -> None:
    """A rejected effect stands against success, unless it was declared as not required."""
    for required, state in ((True, "running"), (False, "succeeded")):
        attempt = running()
        context = context_of(attempt)
        with pytest.raises(EffectRejected):
            context.effect("charge", keyed(Rejected("no")), key=str(uuid.uuid4()), required=required, order_id=7)
        if required:
            with pytest.raises(EffectsOpenError), context.complete():
                pass
        else:
            with context.complete():
                pass

        assert job_row(attempt).state == state


def test_completion_follows_a_confirmed_and_an_abandoned_effect(time: MovableClock) -> None:
    """Applied or given up on purpose: the job succeeds."""
    attempt = running()
    context = context_of(attempt)
    context.effect("charge", keyed(), key="order:7", order_id=7)
    context.effect("note", blind(UNCLEAR), on_ambiguous="accept", order_id=7)

    with context.complete():
        pass

    assert job_row(attempt).state == "succeeded"
